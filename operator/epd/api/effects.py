"""What a change of each field of the spec does to what runs: the last words of every field's description.

A table of facts, held against the planner by a test; decides nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class Key(StrEnum):
    """A value derived from the spec whose change makes pods restart or caches start empty."""

    MODEL_VERSION = "model version"
    PAIRING = "pairing"
    ENCODE = "encode"
    PREFILL_DECODE = "prefill-decode"
    PROXY = "proxy"


@dataclass(frozen=True)
class Change:
    """What a change does.

    Attributes:
        sentence: For people.
        always: Keys that change with every new value.
        maybe: Keys that change with some new values.
    """

    sentence: str
    always: frozenset[Key] = frozenset()
    maybe: frozenset[Key] = frozenset()


_ENCODE: Final = frozenset({Key.ENCODE})
_PREFILL_DECODE: Final = frozenset({Key.PREFILL_DECODE})
_PROXY: Final = frozenset({Key.PROXY})
_ROLES: Final = _ENCODE | _PREFILL_DECODE
_VERSION: Final = _ROLES | {Key.MODEL_VERSION, Key.PAIRING}
_ROLE_FLAGS: Final = "rolls the role; what may change embeddings also makes a new cache version, which rolls all roles."
_VARIABLES: Final = "variables of container `engine` that may change embeddings also make a new cache version"


class Effect(Enum):
    """The changes there are."""

    NONE = Change("none.")
    SCALES = Change("adds or removes pods; none restarts.")
    STRATEGY = Change("none; the next rollout goes by it.")
    SERVICE = Change("updates the Service; no pod restarts.")
    COLLECTION = Change("updates the claim's collector; no engine restarts.")
    STAMPS = Change(
        "updates the claim's collector; with connector: Managed rolls all roles, and with encode the proxy.",
        _ROLES,
        _PROXY,
    )
    CLAIM = Change("updates the claim; no pod restarts.")
    STORAGE = Change("grows the claim; shrinking is refused. No pod restarts.")
    REFUSED = Change("refused.")
    TOPOLOGY = Change("adds or removes the role; rolls prefillDecode and the proxy.", _ROLES | _PROXY)
    SUSPENDS = Change("stops or starts every engine; rolls the proxy.", _PROXY)
    DEVICE = Change("rolls the roles whose flags depend on it.", maybe=_ROLES)
    RELEASE = Change("new cache version, rolls all roles; none if only the patch number differs.", maybe=_VERSION)
    ENCODE = Change("rolls the role.", _ENCODE)
    PREFILL_DECODE = Change("rolls the role.", _PREFILL_DECODE)
    ENCODE_FLAGS = Change(_ROLE_FLAGS, _ENCODE, _VERSION)
    PREFILL_DECODE_ARGS = Change(
        f"{_ROLE_FLAGS} A --max-num-batched-tokens above the encoders' rolls encode too.", _PREFILL_DECODE, _VERSION
    )
    PREFILL_DECODE_ENV = Change(_ROLE_FLAGS, _PREFILL_DECODE, _VERSION)
    ENGINE_FLAGS = Change(
        "rolls all roles; what may change embeddings also makes a new cache version.", _ROLES, _VERSION
    )
    ENCODE_TEMPLATE = Change(f"rolls the role; {_VARIABLES}, which rolls all roles.", _ENCODE, _VERSION)
    PREFILL_DECODE_TEMPLATE = Change(f"rolls the role; {_VARIABLES}, which rolls all roles.", _PREFILL_DECODE, _VERSION)
    ENGINE_TEMPLATE = Change(f"rolls all roles; {_VARIABLES}.", _ROLES, _VERSION)
    IMAGE = Change(
        "rolls all roles, old and new pods are not mixed; another minor version of vLLM, or any image whose tag names "
        "none, also makes a new cache version.",
        _ROLES | {Key.PAIRING},
        _VERSION,
    )
    ALL = Change("rolls all roles.", _ROLES)
    EVERYTHING = Change("rolls all roles and the proxy.", _ROLES | _PROXY)
    ENGINE_TLS = Change("rolls all roles and the proxy; a change inside the Secret does not.", _ROLES | _PROXY)
    IDS = Change("rolls all roles, and the proxy where runAsUser comes or goes.", _ROLES, _PROXY)
    CONNECTOR = Change(
        "rolls all roles, and the proxy where Managed comes or goes; old and new pods are not mixed.",
        _ROLES | {Key.PAIRING},
        _PROXY,
    )
    PAIRING = Change("rolls all roles; old and new pods are not mixed.", _ROLES | {Key.PAIRING})
    VERSION = Change("new cache version, rolls all roles.", _VERSION)
    VERSION_AND_PROXY = Change("new cache version, rolls all roles and the proxy.", _VERSION | _PROXY)
    PROXY = Change("rolls the proxy.", _PROXY)
    TLS = Change("rolls the proxy; the Service's port and the URL follow.", _PROXY)
    SECRET = Change("rolls the proxy; a change inside the Secret does not.", _PROXY)
    PROXY_REQUEST = Change(
        "rolls the proxy, and prefillDecode where its drainTimeout is absent.", _PROXY, _PREFILL_DECODE
    )


def _role(path: str, *, rolls: Effect, args: Effect, env: Effect, template: Effect) -> dict[str, Effect]:
    return {
        f"{path}.replicas": Effect.SCALES,
        f"{path}.scaling": Effect.SCALES,
        f"{path}.parallelism": rolls,
        f"{path}.resources": rolls,
        f"{path}.port": rolls,
        f"{path}.args": args,
        f"{path}.env": env,
        f"{path}.rollingUpdate": Effect.STRATEGY,
        f"{path}.startupTimeout": rolls,
        f"{path}.drainTimeout": rolls,
        f"{path}.podTemplate": template,
        f"{path}.podTemplate.metadata": rolls,
    }


EFFECTS: Final[dict[str, Effect]] = {
    "model.name": Effect.VERSION,
    "model.revision": Effect.VERSION,
    "model.servedNames": Effect.ALL,
    "model.dtype": Effect.VERSION,
    "model.quantization": Effect.VERSION,
    "model.maxModelLen": Effect.ALL,
    "model.processorKwargs": Effect.VERSION,
    "model.mediaIOKwargs": Effect.VERSION,
    "model.mediaLimits": Effect.ALL,
    "model.source": Effect.VERSION,
    "model.source.huggingFace.tokenSecretRef": Effect.ALL,
    "model.source.huggingFace.cacheClaim": Effect.ALL,
    "model.source.huggingFace.offline": Effect.PAIRING,
    "engine.image": Effect.IMAGE,
    "engine.imagePullPolicy": Effect.ALL,
    "engine.version": Effect.RELEASE,
    "engine.device": Effect.DEVICE,
    "engine.args": Effect.ENGINE_FLAGS,
    "engine.tls": Effect.EVERYTHING,
    "engine.tls.secretName": Effect.ENGINE_TLS,
    "engine.tls.serverName": Effect.PROXY,
    "engine.env": Effect.ENGINE_FLAGS,
    "engine.podTemplate": Effect.ENGINE_TEMPLATE,
    "engine.podTemplate.metadata": Effect.ALL,
    "imagePullSecrets": Effect.EVERYTHING,
    "encode": Effect.TOPOLOGY,
    **_role(
        "encode",
        rolls=Effect.ENCODE,
        args=Effect.ENCODE_FLAGS,
        env=Effect.ENCODE_FLAGS,
        template=Effect.ENCODE_TEMPLATE,
    ),
    **_role(
        "prefillDecode",
        rolls=Effect.PREFILL_DECODE,
        args=Effect.PREFILL_DECODE_ARGS,
        env=Effect.PREFILL_DECODE_ENV,
        template=Effect.PREFILL_DECODE_TEMPLATE,
    ),
    "encoderCache": Effect.PAIRING,
    "encoderCache.connector": Effect.CONNECTOR,
    "encoderCache.custom": Effect.CONNECTOR,
    "encoderCache.extraConfig": Effect.PAIRING,
    "encoderCache.hashAlgorithm": Effect.VERSION_AND_PROXY,
    "encoderCache.salt": Effect.VERSION,
    "encoderCache.volume": Effect.PAIRING,
    "encoderCache.volume.volumeClaimTemplate": Effect.PAIRING,
    "encoderCache.volume.volumeClaimTemplate.metadata": Effect.CLAIM,
    "encoderCache.volume.volumeClaimTemplate.spec": Effect.CLAIM,
    "encoderCache.volume.volumeClaimTemplate.spec.storageClassName": Effect.REFUSED,
    "encoderCache.volume.volumeClaimTemplate.spec.accessModes": Effect.REFUSED,
    "encoderCache.volume.volumeClaimTemplate.spec.volumeName": Effect.REFUSED,
    "encoderCache.volume.volumeClaimTemplate.spec.selector": Effect.REFUSED,
    "encoderCache.volume.volumeClaimTemplate.spec.volumeMode": Effect.REFUSED,
    "encoderCache.volume.volumeClaimTemplate.spec.dataSource": Effect.REFUSED,
    "encoderCache.volume.volumeClaimTemplate.spec.dataSourceRef": Effect.REFUSED,
    "encoderCache.volume.volumeClaimTemplate.spec.resources.requests.storage": Effect.STORAGE,
    "encoderCache.reclaimPolicy": Effect.NONE,
    "encoderCache.garbageCollection": Effect.COLLECTION,
    "encoderCache.garbageCollection.minIdle": Effect.STAMPS,
    "proxy.replicas": Effect.SCALES,
    "proxy.scaling": Effect.SCALES,
    "proxy.encoderFailurePolicy": Effect.PROXY,
    "proxy.affinity": Effect.PROXY,
    "proxy.timeouts": Effect.PROXY,
    "proxy.timeouts.request": Effect.PROXY_REQUEST,
    "proxy.limits": Effect.PROXY,
    "proxy.tls": Effect.TLS,
    "proxy.tls.secretName": Effect.SECRET,
    "proxy.auth": Effect.PROXY,
    "proxy.auth.apiKeys.secretName": Effect.SECRET,
    "proxy.cors": Effect.PROXY,
    "proxy.accessLog": Effect.PROXY,
    "proxy.service": Effect.SERVICE,
    "proxy.media": Effect.PROXY,
    "proxy.media.allowedDomains": Effect.EVERYTHING,
    "proxy.resources": Effect.PROXY,
    "proxy.podTemplate": Effect.PROXY,
    "securityContext": Effect.IDS,
    "paused": Effect.NONE,
    "suspend": Effect.SUSPENDS,
    "restartedAt": Effect.ALL,
}
"""Path below `spec` -> what its change does; a path without an entry has that of its parent."""


def effect(path: str) -> Effect | None:
    """Return what a change of the field at `path` (below `spec`, such as `model.dtype`) does; None for mere groups."""
    while path:
        if path in EFFECTS:
            return EFFECTS[path]
        path = path.rpartition(".")[0]
    return None
