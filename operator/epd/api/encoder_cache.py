"""`spec.encoderCache`: where embeddings are kept between encoder and prefill side. Shapes only."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, WithJsonSchema

from epd.api import shapes
from epd.api.fields import ApiModel, ClaimRef, JSONObject


class ConnectorKind(StrEnum):
    """How entries get from encoder to prefill side."""

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
    """A claim of your own; the operator never owns it and deletes nothing on it. Is it ReadWriteOnce, hold the engines
    on one node with engine.podTemplate; for a template the operator does that."""


class ReclaimPolicy(StrEnum):
    """What becomes of the claim when the EPDDeployment goes."""

    DELETE = "Delete"
    RETAIN = "Retain"


class EncoderCacheSpec(ApiModel):
    """The encoder cache (EC): where embeddings of media items are kept."""

    connector: ConnectorKind = ConnectorKind.EXAMPLE
    """How embeddings get from encoder to prefill side: Example is vLLM's ECExampleConnector, files on a shared volume;
    Custom is a class of your own."""
    custom: CustomConnector | None = None
    """The class to load. Set with connector: Custom, and with it alone."""
    extra_config: JSONObject = Field(default_factory=dict)
    """Further keys for the connector (`ec_connector_extra_config`)."""
    hash_algorithm: HashAlgorithm = HashAlgorithm.BLAKE3
    """Hash of media items, in engines and proxy alike: BLAKE3, or SHA256 where FIPS asks for it."""
    salt: str = Field("", max_length=253)
    """Any text; change it to start with an empty cache, for example `"2"`."""
    volume: Volume | None = None
    """Where the cache lies: exactly one member. Required with connector: Example."""
    reclaim_policy: ReclaimPolicy | None = None
    """What becomes of the cache's claim when the EPDDeployment is deleted: Delete or Retain. Default: Delete for a
    template, Retain for a claim of your own, which can only be retained."""
