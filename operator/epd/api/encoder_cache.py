"""`spec.encoderCache`: where embeddings are kept between encoder and prefill side. Shapes only."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, WithJsonSchema

from epd.api import shapes
from epd.api.fields import ApiModel, ClaimRef, Duration, JSONObject, PodTemplate, Quantity, Resources


class ConnectorKind(StrEnum):
    """How entries get from encoder to prefill side."""

    MANAGED = "Managed"
    EXAMPLE = "Example"
    CUSTOM = "Custom"


class CustomConnector(ApiModel):
    """A connector class of your own, importable in the engine image."""

    class_name: str = Field(alias="class", min_length=1, max_length=253, pattern="^[A-Za-z_][A-Za-z0-9_]*$")
    """Class of the connector (`ec_connector`), for example `RedisECConnector`."""
    module: str = Field(min_length=1, max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")
    """Module that has the class (`ec_connector_module_path`), for example `acme.connectors`."""


class HashAlgorithm(StrEnum):
    """The hash of media items."""

    BLAKE3 = "BLAKE3"
    SHA256 = "SHA256"


class VolumeClaimTemplate(ApiModel):
    """A PersistentVolumeClaim to make, as in a StatefulSet."""

    metadata: Annotated[JSONObject, WithJsonSchema(shapes.CLAIM_METADATA)] = Field(default_factory=dict)
    """Labels and annotations of the claim."""
    spec: Annotated[JSONObject, WithJsonSchema(shapes.CLAIM_SPEC)]
    """Spec of the claim, as in a PersistentVolumeClaim. The class, the access modes, volumeName and selector cannot be
    changed; the storage request can grow."""


class Volume(ApiModel):
    """Where the encoder cache lies: exactly one member."""

    volume_claim_template: VolumeClaimTemplate | None = None
    """A claim for the operator to make, named `<name>-encoder-cache`."""
    persistent_volume_claim: ClaimRef | None = None
    """A claim of your own; the operator never owns it. Is it ReadWriteOnce, hold the engines
    on one node with engine.podTemplate; for a template the operator does that."""


class ReclaimPolicy(StrEnum):
    """What becomes of the cache when the EPDDeployment goes."""

    DELETE = "Delete"
    RETAIN = "Retain"


class GarbageCollection(ApiModel):
    """What may be deleted from the encoder cache, and when. Where several EPDDeployments share a claim, the most
    careful value of all counts; status.encoderCache.policy shows it."""

    enabled: bool = True
    """false: nothing is deleted from the claim; no collector runs if all users of the claim say so."""
    version_grace_period: Duration = "1h"
    """How long a cache version must be unused before it is deleted, for example `24h`, so that a rollback finds it."""
    entry_ttl: Duration | None = Field(None, alias="entryTTL")
    """How long an entry may be unused before it is deleted, for example `72h`; at least minIdle. Absent: no limit."""
    min_idle: Duration = "30m"
    """Entries that were used more recently are never deleted, for example `1h`. Use is noted every quarter of it."""
    high_watermark_percent: int = Field(85, ge=1, le=99)
    """Share of the volume's bytes or inodes, or of maxSize, above which the longest unused entries are deleted."""
    low_watermark_percent: int = Field(70, ge=0, le=98)
    """Share down to which they are deleted; less than highWatermarkPercent."""
    max_size: Quantity | None = None
    """Size that this object's own versions are kept below, for example `80Gi`. Default: the claim's requested storage,
    since many file servers report no real size."""
    dry_run: bool = False
    """true: nothing is deleted from the claim; the collector says what it would delete."""
    evict_live_entries: bool = False
    """With connector: Example, also delete entries of versions in use, by age and watermarks. An engine that loses an
    entry between its look and its read ends, and its requests with it; Managed needs no such choice."""
    # Its modules take 40 MiB, measured; the limit leaves room for the largest answer of an API server that it parses.
    resources: Resources = Field(
        default_factory=lambda: Resources(requests={"cpu": "50m", "memory": "64Mi"}, limits={"memory": "256Mi"})
    )
    """Requests and limits of the claim's collector, taken as a whole; of several users' the greatest. Default:
    `{requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 256Mi}}`."""
    pod_template: PodTemplate = Field(default_factory=dict)
    """metadata and spec of the collector's pod, merged strategically; of several users' the oldest object's wins. The
    container is named `collector`. Refused in it: image, command, args, ports, limits and requests of that container,
    the volume `encoder-cache`, user and group ids, and serviceAccountName and restartPolicy of the pod."""


class EncoderCacheSpec(ApiModel):
    """The encoder cache (EC): where embeddings of media items are kept."""

    connector: ConnectorKind = ConnectorKind.MANAGED
    """How embeddings get from encoder to prefill side: Managed is the operator's own, checked files on a shared volume
    whose loss, damage or hang is never more than a miss (vLLM 0.31 or newer); Example is vLLM's ECExampleConnector,
    plain files on a shared volume; Custom is a class of your own."""
    custom: CustomConnector | None = None
    """The class to load. Set with connector: Custom, and with it alone."""
    extra_config: JSONObject = Field(default_factory=dict)
    """Further keys for the connector (`ec_connector_extra_config`). Managed knows `local_bytes`,
    `probe_timeout_seconds`, `write_timeout_seconds` and `io_threads`."""
    hash_algorithm: HashAlgorithm = HashAlgorithm.BLAKE3
    """Hash of media items, in engines and proxy alike: BLAKE3, or SHA256 where FIPS asks for it."""
    salt: str = Field("", max_length=253)
    """Any text; change it to start with an empty cache, for example `"2"`."""
    volume: Volume | None = None
    """Where the cache lies: exactly one member. Required with connector: Managed and Example."""
    reclaim_policy: ReclaimPolicy | None = None
    """What becomes of the cache when the EPDDeployment is deleted. Delete: a claim made from a template goes, and from
    a claim of your own the object's versions go, as far as no one else uses them. Retain: everything stays. Default:
    Delete for a template, Retain for a claim of your own."""
    garbage_collection: GarbageCollection = Field(default_factory=GarbageCollection)
    """What the claim's collector may delete, and when. Without effect with connector: Custom, whose files are its
    own."""
