"""Names that people and other programs rely on: group, labels, annotations, conditions, reasons, child names.

Constants and pure name functions only; nothing here reads or writes an object.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Final

GROUP: Final = "epd.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "EPDDeployment"
PLURAL: Final = "epddeployments"
SINGULAR: Final = "epddeployment"
SHORT_NAME: Final = "epd"

FIELD_MANAGER: Final = "epd-operator"
REPLICAS_FIELD_MANAGER: Final = "epd-operator-replicas"
"""Holds `spec.replicas` while the main apply leaves it out: at a scaler's takeover and while suspended."""

LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_PART_OF: Final = "app.kubernetes.io/part-of"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"

LABEL_EPD: Final = "epd.dev/name"
"""On every child and pod: the name of the EPDDeployment. Part of the selectors, so it never changes."""
LABEL_ROLE: Final = "llm-d.ai/role"
"""On engine pods: a `Role`. The same label that llm-d's router and dashboards read."""
LABEL_MODEL_VERSION: Final = "epd.dev/model-version"
LABEL_PAIRING: Final = "epd.dev/pairing"
LABEL_COLLECTOR: Final = "epd.dev/collector"
"""On the children and pods of a collector: its name. They have no `LABEL_EPD`: one serves all users of a
claim."""

ANNOTATION_INPUTS: Final = "epd.dev/inputs"
"""On a role's Deployment: the hash of the user's inputs its pod template was rendered from."""
ANNOTATION_CLAIM: Final = "epd.dev/claim"
"""On a collector's children: the claim that it looks after."""
ANNOTATION_SUB_PATH: Final = "epd.dev/sub-path"
"""On a collector's children: the directory in the claim that it looks after; absent for the claim's root."""
ANNOTATION_NODE: Final = "epd.dev/node"
"""On a collector's pods, where one node at a time can mount the claim: the node of its engines. Another one moves it
there, or its mount would keep the volume from them."""
ANNOTATION_ADOPT_ROOT: Final = "epd.dev/adopt-encoder-cache-root"
"""On a PersistentVolumeClaim, by a person: the id of the root that the claim takes over from another one."""
FINALIZER_ENCODER_CACHE: Final = "epd.dev/encoder-cache"
"""On an EPDDeployment with `reclaimPolicy: Delete` on a claim that was brought: its entries go before it goes."""

COMPONENT_PROXY: Final = "proxy"
COMPONENT_PREFLIGHT: Final = "preflight"
COMPONENT_STORAGE: Final = "encoder-cache"
COMPONENT_CONNECTOR: Final = "connector"
COMPONENT_COLLECTOR: Final = "collector"

ENGINE_CONTAINER: Final = "engine"
PROXY_CONTAINER: Final = "proxy"
PREFLIGHT_CONTAINER: Final = "preflight"
COLLECTOR_CONTAINER: Final = "collector"
PROXY_TLS_VOLUME: Final = "tls"
PROXY_TLS_PATH: Final = "/var/lib/epd/tls"
PROXY_API_KEYS_VOLUME: Final = "api-keys"
PROXY_API_KEYS_PATH: Final = "/var/lib/epd/api-keys"
PROXY_ENGINE_CA_VOLUME: Final = "engine-ca"
PROXY_ENGINE_CA_PATH: Final = "/var/lib/epd/engine-ca"
TLS_CERTIFICATE: Final = "tls.crt"
TLS_KEY: Final = "tls.key"
"""Keys of a Secret of type kubernetes.io/tls."""
TLS_CA: Final = "ca.crt"
"""What cert-manager adds to them, where the issuer has a CA of its own."""
COLLECTOR_PORT: Final = 8080
"""Of `/status`, `/metrics`, `/healthz` and `/readyz`."""
ENGINE_PORT_NAME: Final = "http"
ENGINE_TLS_PORT_NAME: Final = "https"
"""The port's name tells the proxy what a pod speaks: while spec.engine.tls comes, there are both."""
ENGINE_TLS_VOLUME: Final = "engine-tls"
ENGINE_TLS_PATH: Final = "/var/lib/epd/engine-tls"

ENCODER_CACHE_VOLUME: Final = "encoder-cache"
ENCODER_CACHE_PATH: Final = "/var/lib/epd/encoder-cache"
CONNECTOR_VOLUME: Final = "connector"
CONNECTOR_PATH: Final = "/var/lib/epd/connector"
"""In engines, on `PYTHONPATH`: holds `CONNECTOR_PACKAGE`."""
CONNECTOR_PACKAGE: Final = "epd_connector"
MODEL_VOLUME: Final = "model"
MODEL_PATH: Final = "/var/lib/epd/model"
"""The same in every role: the path is what vLLM hashes as the model into each item's identifier."""

NAME_MAX_LENGTH: Final = 45
"""Names of Services and Jobs become DNS and label values of at most 63 characters; the longest is that of the preflight
Job with its hash of 7."""
NAME_PATTERN: Final = "^[a-z]([-a-z0-9]*[a-z0-9])?$"


class Role(StrEnum):
    """What one engine does; also the value of the label `llm-d.ai/role`."""

    ENCODE = "encode"
    PREFILL = "prefill"
    DECODE = "decode"
    PREFILL_DECODE = "prefill-decode"


class ConditionType(StrEnum):
    """Types of `status.conditions`. `Reconciling` and `Stalled` are kstatus's abnormal-true pair."""

    AVAILABLE = "Available"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    STORAGE_READY = "StorageReady"
    ENCODE_READY = "EncodeReady"
    PREFILL_DECODE_READY = "PrefillDecodeReady"
    PROXY_READY = "ProxyReady"
    ENCODER_CACHE_HEALTHY = "EncoderCacheHealthy"
    UPDATE_AVAILABLE = "UpdateAvailable"


ROLE_CONDITIONS: Final = {
    Role.ENCODE: ConditionType.ENCODE_READY,
    Role.PREFILL_DECODE: ConditionType.PREFILL_DECODE_READY,
}


class Reason(StrEnum):
    """Reasons of conditions and Events. Part of the API: alerts and scripts match them."""

    PENDING = "Pending"
    ALL_READY = "AllReady"
    ROLLING_OUT = "RollingOut"
    STARTING = "Starting"
    SUSPENDED = "Suspended"
    PAUSED = "Paused"
    SERVING = "Serving"
    NOT_SERVING = "NotServing"
    AS_SPECIFIED = "AsSpecified"
    RETRYING = "Retrying"
    # terminal: retrying cannot mend them
    INVALID_SPEC = "InvalidSpec"
    OWNED_FIELD = "OwnedField"
    NAME_TAKEN = "NameTaken"
    REJECTED_BY_API_SERVER = "RejectedByAPIServer"
    UNSUPPORTED_ENGINE = "UnsupportedEngine"
    # storage
    BOUND = "Bound"
    SINGLE_NODE = "SingleNode"
    NO_STORAGE = "NoStorage"
    CLAIM_NOT_FOUND = "ClaimNotFound"
    CLAIM_PENDING = "ClaimPending"
    WAITING_FOR_FIRST_CONSUMER = "WaitingForFirstConsumer"
    STORAGE_CLASS_NOT_FOUND = "StorageClassNotFound"
    NO_DEFAULT_STORAGE_CLASS = "NoDefaultStorageClass"
    ACCESS_MODE_NOT_SUPPORTED = "AccessModeNotSupported"
    CHECKING = "Checking"
    NOT_WRITABLE = "NotWritable"
    REDUCED_GUARANTEES = "ReducedGuarantees"
    # the encoder cache and its collector
    HEALTHY = "Healthy"
    COLLECTOR_NOT_RUNNING = "CollectorNotRunning"
    COLLECTION_DISABLED = "CollectionDisabled"
    COLLECTION_FAILED = "CollectionFailed"
    DRY_RUN = "DryRun"
    LIVENESS_UNKNOWN = "LivenessUnknown"
    CLOCK_UNRELIABLE = "ClockUnreliable"
    ROOT_OWNED_BY_ANOTHER_CLAIM = "RootOwnedByAnotherClaim"
    FOREIGN_DATA_DOMINATES = "ForeignDataDominates"
    OVER_WATERMARK = "OverWatermark"
    VERSION_IN_USE_BY_STRANGER = "VersionInUseByStranger"
    USERS_DISAGREE = "UsersDisagree"
    VERSION_CONDEMNED = "VersionCondemned"
    VERSION_REMOVED = "VersionRemoved"
    ENTRIES_REMOVED = "EntriesRemoved"
    RECLAIMING = "Reclaiming"
    RECLAIMED = "Reclaimed"
    RECLAIM_GIVEN_UP = "ReclaimGivenUp"
    # pods
    IMAGE_PULL = "ImagePull"
    UNSCHEDULABLE = "Unschedulable"
    INSUFFICIENT_DEVICES = "InsufficientDevices"
    INSUFFICIENT_CAPACITY_FOR_SURGE = "InsufficientCapacityForSurge"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 (a reason, not a secret)
    SECRET_KEY_MISSING = "SecretKeyMissing"  # noqa: S105 (a reason, not a secret)
    CONFIG_ERROR = "ConfigError"
    OOM_KILLED = "OOMKilled"
    CRASH_LOOP = "CrashLoop"
    MODEL_HAS_NO_ENCODER = "ModelHasNoEncoder"
    FAILED_CREATE = "FailedCreate"
    # operator
    UPDATE_AVAILABLE = "UpdateAvailable"
    UP_TO_DATE = "UpToDate"


def role_deployment(epd: str, role: Role) -> str:
    """Name of a role's Deployment. `prefilldecode` has no hyphen, or `foo` and `foo-prefill` could collide."""
    return f"{epd}-{role.replace('-', '')}"


def proxy(epd: str) -> str:
    """Name of the proxy's Deployment, ServiceAccount, Role and RoleBinding."""
    return f"{epd}-proxy"


def service(epd: str) -> str:
    """Name of the Service that is the deployment's URL."""
    return epd


def encoder_cache_claim(epd: str) -> str:
    """Name of the PersistentVolumeClaim made from `spec.encoderCache.volume.volumeClaimTemplate`."""
    return f"{epd}-encoder-cache"


def engine_service_account(epd: str) -> str:
    """Name of the engines' ServiceAccount; it has no rights and its token is not mounted."""
    return f"{epd}-engine"


def engine_server(epd: str, namespace: str) -> str:
    """DNS name that engines' certificates are for by default. No Service has it: the proxy calls pods by address."""
    return f"{epd}-engine.{namespace}.svc"


def preflight(epd: str, inputs: str) -> str:
    """Name of the Job that checks the claim, one per `inputs` (a short hash of claim and user)."""
    return f"{epd}-preflight-{inputs}"


def connector_config_map(epd: str, content: str) -> str:
    """Name of the ConfigMap with the connector's source, one per `content` (a short hash of it)."""
    return f"{epd}-connector-{content}"


_LABEL_LENGTH: Final = 63
_CLAIM_HASH_LENGTH: Final = 8
"""32 bits: the few claims and directories of one namespace do not collide."""


def collector(claim: str, sub_path: str = "") -> str:
    """Name of a collector's Deployment, ServiceAccount, Role and RoleBinding, at most 63 characters.

    `<claim>-collector`; with a hash of both for a directory in the claim, and for a claim whose name is too long or has
    a dot, which a host name cannot have. A name with a hash never ends like one without.
    """
    plain = f"{claim}-collector"
    if not sub_path and "." not in claim and len(plain) <= _LABEL_LENGTH:
        return plain
    hashed = hashlib.sha256(f"{claim}/{sub_path}".encode()).hexdigest()[:_CLAIM_HASH_LENGTH]
    ending = f"-collector-{hashed}"
    return claim.replace(".", "-")[: _LABEL_LENGTH - len(ending)].rstrip("-") + ending
