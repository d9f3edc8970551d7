"""CEL rules of the CustomResourceDefinition, by field, with messages that tell the fix.

Only what one object alone can show; what needs prefix matching or looks into a podTemplate is in `validation`.
Transition rules stand on a parent that both versions have, or removing a field and adding it again would get round
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from epd.api.encoder_cache import GarbageCollection
from epd.api.names import NAME_MAX_LENGTH, NAME_PATTERN
from epd.api.owned import ALIASES, OWNED_ENV, OWNED_FLAGS, ROLE_FLAGS
from epd.api.proxy import ProxySpec


@dataclass(frozen=True)
class Rule:
    """One entry of `x-kubernetes-validations`.

    Attributes:
        rule: CEL expression that is true of valid values.
        message: What to say otherwise; a CEL expression where it starts with `=`.
    """

    rule: str
    message: str

    def schema(self) -> dict[str, str]:
        """Return the entry as the schema has it."""
        if self.message.startswith("="):
            return {"rule": self.rule, "messageExpression": self.message[1:]}
        return {"rule": self.rule, "message": self.message}


ROOT_RULES: Final = (
    Rule(
        f"self.metadata.name.size() <= {NAME_MAX_LENGTH} && self.metadata.name.matches('{NAME_PATTERN}')",
        f"metadata.name: at most {NAME_MAX_LENGTH} characters, lower-case letters, digits and '-', beginning with a "
        "letter and not ending in '-', so that the names of Services and pods fit",
    ),
)

_TEMPLATE: Final = "encoderCache.volume.volumeClaimTemplate"
_CLAIM_FIXED: Final = {
    "storageClassName": "its class",
    "accessModes": "its access modes",
    "volumeName": "its volume",
    "selector": "its selector",
    "volumeMode": "its mode",
    "dataSource": "what it began with",
    "dataSourceRef": "what it began with",
}


def _both(path: str) -> str:
    """CEL that is true when old and new spec have `path`."""
    parts = path.split(".")
    paths = [".".join(parts[: end + 1]) for end in range(len(parts))]
    return " && ".join(f"has({side}.{part})" for side in ("oldSelf", "self") for part in paths)


def _immutable(field: str, what: str) -> Rule:
    old, new = f"oldSelf.{_TEMPLATE}.spec.{field}", f"self.{_TEMPLATE}.spec.{field}"
    return Rule(
        f"!({_both(_TEMPLATE)}) || (has({old}) ? has({new}) && {new} == {old} : !has({new}))",
        f"spec.{_TEMPLATE}.spec.{field} cannot be changed: a claim keeps {what}. Make a claim of your own and set "
        "spec.encoderCache.volume.persistentVolumeClaim, or delete and create the EPDDeployment",
    )


_STORAGE: Final = f"{_TEMPLATE}.spec.resources.requests.storage"

SPEC_RULES: Final = (
    Rule(
        "has(self.prefillDecode)",
        "spec: set prefillDecode. prefillDecode alone is aggregated; with encode it is E|PD",
    ),
    Rule(
        "!has(self.encode) || has(self.encoderCache)",
        "spec.encoderCache is required with spec.encode: embeddings get to the prefill side through it",
    ),
    Rule(
        "!has(self.prefillDecode) || !has(self.prefillDecode.replicas) || self.prefillDecode.replicas > 0"
        " || self.suspend",
        "spec.prefillDecode.replicas must be at least 1; to stop every engine, set spec.suspend: true",
    ),
    Rule(
        "!has(self.encode) || !has(self.engine.args) || !self.engine.args.exists(a, a == '--mm-processor-cache-gb=0')"
        " && (self.engine.args.indexOf('--mm-processor-cache-gb') < 0"
        " || self.engine.args.indexOf('--mm-processor-cache-gb') + 1 >= self.engine.args.size()"
        " || self.engine.args[self.engine.args.indexOf('--mm-processor-cache-gb') + 1] != '0')",
        "spec.engine.args: --mm-processor-cache-gb 0 is refused with spec.encode: without it encoders name items by "
        "request, and nothing they write is ever read; use 1 or more",
    ),
    *(_immutable(field, what) for field, what in _CLAIM_FIXED.items()),
    Rule(
        f"!({_both(_TEMPLATE)}) ||"
        f" quantity(string(self.{_STORAGE})).compareTo(quantity(string(oldSelf.{_STORAGE}))) >= 0",
        f"spec.{_STORAGE} cannot shrink: volumes only grow",
    ),
)

_TENSOR: Final = (
    "(has(self.parallelism) && has(self.parallelism.tensor) ? self.parallelism.tensor : 1)"  # the computed default
)
_GPU_DIFFERS: Final = f"k.endsWith('/gpu') && string(self.resources.limits[k]) != string({_TENSOR})"


# through dyn(), because the cost of joining a plain string or a number as text is estimated without any bound
_FIRST_GPU: Final = f"dyn(self.resources.limits.filter(k, {_GPU_DIFFERS})[0])"


def _duration(path: str, at_least: str, at_most: str) -> Rule:
    return Rule(
        f"duration(self) >= duration('{at_least}') && duration(self) <= duration('{at_most}')",
        f"{path} must be between {at_least} and {at_most}, such as 90s, 10m or 1h30m",
    )


_ARG_NAME: Final = "self.split('=')[0].split('.')[0].replace('_', '-')"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _literal_map(entries: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{_literal(key)}: {_literal(value)}" for key, value in entries.items()) + "}"


def _args(refused: Mapping[str, str]) -> Rule:
    """Plain spellings: `--a`, `--a=b`, `--a_b`, `--a.key`, `-tp`. The rest is found by `owned.find_owned`."""
    table = dict(refused) | {alias: refused[flag] for alias, flag in ALIASES.items()}
    names = ", ".join(_literal(flag) for flag in table)
    return Rule(
        f"!(self.startsWith('-') && {_ARG_NAME} in [{names}])",
        f"={_ARG_NAME} + ' ' + {_literal_map(table)}[{_ARG_NAME}]",
    )


_ENV: Final = (
    Rule(
        f"!(self.name in [{', '.join(_literal(name) for name in OWNED_ENV)}])",
        f"=self.name + ' ' + {_literal_map(OWNED_ENV)}[self.name]",
    ),
    Rule("!(has(self.value) && has(self.valueFrom))", "set value or valueFrom, not both"),
)
_ENV_SOURCE: Final = Rule(
    "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef), has(self.resourceFieldRef)]"
    ".filter(x, x).size() == 1",
    "set exactly one of secretKeyRef, configMapKeyRef, fieldRef and resourceFieldRef",
)


_NOT_NEGATIVE: Final = (
    Rule("type(self) == string || self >= 0", "must be a number of pods, 0 or more, or a percentage such as 25%"),
)


def _role(path: str) -> dict[str, tuple[Rule, ...]]:
    where = f"spec.{path}"
    return {
        path: (
            Rule(
                "!has(self.replicas) || !has(self.scaling) || !has(self.scaling.mode) || self.scaling.mode == 'Static'",
                f"={_literal(where + '.replicas must be absent when scaling.mode is ')} + self.scaling.mode"
                " + ' (in a Kustomize patch: replicas: null)'",
            ),
            Rule(
                "!has(self.resources) || !has(self.resources.limits)"
                f" || !self.resources.limits.exists(k, {_GPU_DIFFERS})",
                f"='parallelism.tensor is ' + string(dyn({_TENSOR})) + ' but resources.limits[\"'"
                f" + string({_FIRST_GPU}) + '\"] is ' + string(self.resources.limits[{_FIRST_GPU}])"
                " + '; they must be equal'",
            ),
        ),
        f"{path}.rollingUpdate": (
            Rule(
                "!has(self.maxSurge) || !has(self.maxUnavailable)"
                " || !(string(self.maxSurge) in ['0', '0%'] && string(self.maxUnavailable) in ['0', '0%'])",
                f"{where}.rollingUpdate: maxSurge and maxUnavailable cannot both be 0, or a rollout could never move",
            ),
        ),
        f"{path}.rollingUpdate.maxSurge": _NOT_NEGATIVE,
        f"{path}.rollingUpdate.maxUnavailable": _NOT_NEGATIVE,
        f"{path}.startupTimeout": (_duration(f"{where}.startupTimeout", "10s", "24h"),),
        f"{path}.drainTimeout": (_duration(f"{where}.drainTimeout", "0s", "24h"),),
        f"{path}.args[]": (_args(ROLE_FLAGS),),
        f"{path}.env[]": _ENV,
        f"{path}.env[].valueFrom": (_ENV_SOURCE,),
    }


_SUB_PATH: Final = (
    Rule(
        "!self.startsWith('/') && !self.split('/').exists(part, part == '..')",
        "must be a relative path without '..'",
    ),
    Rule(
        # One spelling for one directory: what shares it shares a collector.
        "self == '' || !self.split('/').exists(part, part in ['', '.'])",
        "must have no '.' and no empty part, such as qwen/ec",
    ),
)

_COLLECTION: Final = "encoderCache.garbageCollection"
_DEFAULTS: Final = GarbageCollection()


def _or_default(field: str) -> str:
    """CEL of a field of `_COLLECTION`. The default `{}` of the whole is checked before it gets defaults of its own."""
    default = _DEFAULTS.model_dump(mode="json", by_alias=True)[field]
    return f"(has(self.{field}) ? self.{field} : {_literal(default) if isinstance(default, str) else default})"


_DELETES_FROM_BROUGHT: Final = (
    "has(self.reclaimPolicy) && self.reclaimPolicy == 'Delete' && has(self.volume)"
    " && has(self.volume.persistentVolumeClaim)"
)

_HAS_KEYS: Final = "has(self.auth) && has(self.auth.apiKeys)"

_PROXY_DEFAULTS: Final = ProxySpec()
_DEFAULT_MEMORY: Final = str(_PROXY_DEFAULTS.resources.limits["memory"])
_LARGEST_BODY: Final = (
    "quantity(has(self.media) && has(self.media.maxBodySize) ? string(self.media.maxBodySize) : "
    f"{_literal(str(_PROXY_DEFAULTS.media.max_body_size))})"
)
_UNLIMITED_MEMORY: Final = (
    "has(self.resources) && !(has(self.resources.limits) && 'memory' in self.resources.limits)"  # taken as a whole
)
_MEMORY: Final = (
    f"quantity(has(self.resources) ? string(self.resources.limits['memory']) : {_literal(_DEFAULT_MEMORY)})"
)

FIELD_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "model.source": (
        Rule(
            "has(self.huggingFace) != has(self.persistentVolumeClaim)",
            "spec.model.source: set exactly one of huggingFace and persistentVolumeClaim",
        ),
    ),
    "model.source.huggingFace": (
        Rule(
            "!has(self.offline) || !self.offline || has(self.cacheClaim)",
            "spec.model.source.huggingFace.offline needs cacheClaim: without it there is no model to start from",
        ),
    ),
    "model.source.huggingFace.cacheClaim.subPath": _SUB_PATH,
    "model.source.persistentVolumeClaim.subPath": _SUB_PATH,
    "engine.args[]": (_args(OWNED_FLAGS),),
    "engine.env[]": _ENV,
    "engine.env[].valueFrom": (_ENV_SOURCE,),
    **_role("encode"),
    **_role("prefillDecode"),
    "encoderCache": (
        Rule(
            "has(self.custom) == (has(self.connector) && self.connector == 'Custom')",
            "spec.encoderCache.custom must be set with connector: Custom, and with it alone",
        ),
        Rule(
            "has(self.volume) || (has(self.connector) && self.connector == 'Custom')",
            "spec.encoderCache.volume is required with connector: Managed and Example; set volumeClaimTemplate or "
            "persistentVolumeClaim in it",
        ),
        Rule(
            f"!({_DELETES_FROM_BROUGHT}) || self.connector != 'Custom'",
            "spec.encoderCache.reclaimPolicy: Delete is refused with connector: Custom and "
            "volume.persistentVolumeClaim: which files are a custom connector's, the operator cannot tell; use Retain",
        ),
        Rule(
            f"!({_DELETES_FROM_BROUGHT}) || self.garbageCollection.enabled",
            "spec.encoderCache.reclaimPolicy: Delete with volume.persistentVolumeClaim needs "
            "garbageCollection.enabled: true, since the collector deletes the entries; or use Retain",
        ),
        Rule(
            "!self.garbageCollection.evictLiveEntries || self.connector == 'Example'",
            "spec.encoderCache.garbageCollection.evictLiveEntries is a choice of connector: Example alone; Managed "
            "deletes entries of versions in use anyway, as an engine there only misses them. Remove it",
        ),
    ),
    _COLLECTION: (
        Rule(
            f"{_or_default('lowWatermarkPercent')} < {_or_default('highWatermarkPercent')}",
            f"spec.{_COLLECTION}: lowWatermarkPercent must be less than highWatermarkPercent, or one entry more or "
            "less would start and stop the collection",
        ),
        Rule(
            f"!has(self.entryTTL) || duration(self.entryTTL) >= duration({_or_default('minIdle')})",
            f"spec.{_COLLECTION}: entryTTL must be at least minIdle: what was used within minIdle is never deleted",
        ),
    ),
    # A version that comes back within a few seconds is a rollout's or a restart's.
    f"{_COLLECTION}.versionGracePeriod": (_duration(f"spec.{_COLLECTION}.versionGracePeriod", "10s", "8760h"),),
    f"{_COLLECTION}.entryTTL": (_duration(f"spec.{_COLLECTION}.entryTTL", "10s", "8760h"),),
    # Use is noted every quarter of it: more often would cost the file server more than the cache saves.
    f"{_COLLECTION}.minIdle": (_duration(f"spec.{_COLLECTION}.minIdle", "10s", "8760h"),),
    f"{_COLLECTION}.maxSize": (
        Rule("quantity(string(self)).isGreaterThan(quantity('0'))", "must be more than 0, for example 80Gi"),
    ),
    "encoderCache.volume": (
        Rule(
            "has(self.volumeClaimTemplate) != has(self.persistentVolumeClaim)",
            "spec.encoderCache.volume: set exactly one of volumeClaimTemplate and persistentVolumeClaim",
        ),
    ),
    "encoderCache.volume.persistentVolumeClaim.subPath": _SUB_PATH,
    f"{_TEMPLATE}.spec.accessModes": (
        Rule(
            "!('ReadOnlyMany' in self)",
            "ReadOnlyMany cannot hold a cache, encoders write to it; use ReadWriteMany",
        ),
        Rule(
            "!('ReadWriteOncePod' in self)",
            "ReadWriteOncePod lets one pod use the cache, but encoders and prefill side share it; use ReadWriteMany, "
            "or ReadWriteOnce to run all pods on one node",
        ),
    ),
    _STORAGE: (Rule("quantity(string(self)).isGreaterThan(quantity('0'))", "must be more than 0, for example 100Gi"),),
    "proxy": (
        Rule(
            f"!has(self.limits) || !has(self.limits.maxPerTenant) || {_HAS_KEYS}",
            "spec.proxy.limits.maxPerTenant needs spec.proxy.auth.apiKeys: its Secret says who the tenants are. Set "
            "it, or remove maxPerTenant; maxInFlight limits all requests together",
        ),
        Rule(
            "!has(self.auth) || !has(self.auth.tenantIsolation) || self.auth.tenantIsolation != 'Salted'"
            f" || {_HAS_KEYS}",
            "spec.proxy.auth.tenantIsolation: Salted needs spec.proxy.auth.apiKeys: without keys there are no tenants "
            "to tell apart. Set apiKeys: {secretName: ...}, or use Shared",
        ),
        Rule(
            # What bodies may fill (epd.proxy.bodies), but for one alone; parsed text takes four times its size.
            f"{_UNLIMITED_MEMORY} || {_LARGEST_BODY}{3 * f'.add({_LARGEST_BODY})'}.compareTo({_MEMORY}) <= 0",
            "spec.proxy.media.maxBodySize must be at most a quarter of spec.proxy.resources.limits.memory "
            f"({_DEFAULT_MEMORY} by default), or one body could end a proxy pod and all its requests. Raise the limit, "
            "or lower maxBodySize",
        ),
    ),
    "proxy.accessLog": (
        Rule(
            "!has(self.samplePercent) || !has(self.policy) || self.policy == 'Errors'",
            "spec.proxy.accessLog.samplePercent goes with policy: Errors alone: None has no line, All has every "
            "request. Remove one of the two",
        ),
    ),
    "proxy.timeouts.request": (_duration("spec.proxy.timeouts.request", "1s", "24h"),),
    "proxy.timeouts.encode": (_duration("spec.proxy.timeouts.encode", "1s", "1h"),),
    "proxy.timeouts.idle": (_duration("spec.proxy.timeouts.idle", "1s", "1h"),),
    "proxy.timeouts.queue": (_duration("spec.proxy.timeouts.queue", "1s", "1h"),),
    "proxy.media.maxBodySize": (
        Rule(
            "quantity(string(self)).compareTo(quantity('1Ki')) >= 0"
            " && quantity(string(self)).compareTo(quantity('1Gi')) <= 0",
            "spec.proxy.media.maxBodySize must be between 1Ki and 1Gi: the proxy holds a request in memory",
        ),
    ),
}
"""Path below `spec`, `[]` for the items of a list -> rules on its value."""
