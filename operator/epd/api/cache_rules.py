"""CEL rules of the encoder cache: its volume, which mostly cannot change, and its collection."""

from __future__ import annotations

from typing import Final

from epd.api.cel import SUB_PATH, Rule, both, duration, literal
from epd.api.encoder_cache import GarbageCollection

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
_STORAGE: Final = f"{_TEMPLATE}.spec.resources.requests.storage"


def _immutable(field: str, what: str) -> Rule:
    old, new = f"oldSelf.{_TEMPLATE}.spec.{field}", f"self.{_TEMPLATE}.spec.{field}"
    return Rule(
        f"!({both(_TEMPLATE)}) || (has({old}) ? has({new}) && {new} == {old} : !has({new}))",
        f"spec.{_TEMPLATE}.spec.{field} cannot be changed: a claim keeps {what}. Make a claim of your own and set "
        "spec.encoderCache.volume.persistentVolumeClaim, or delete and create the EPDDeployment",
    )


CLAIM_RULES: Final = (
    *(_immutable(field, what) for field, what in _CLAIM_FIXED.items()),
    Rule(
        f"!({both(_TEMPLATE)}) ||"
        f" quantity(string(self.{_STORAGE})).compareTo(quantity(string(oldSelf.{_STORAGE}))) >= 0",
        f"spec.{_STORAGE} cannot shrink: volumes only grow",
    ),
)
"""On the whole spec: what of a claim's template changes."""

_COLLECTION: Final = "encoderCache.garbageCollection"
_DEFAULTS: Final = GarbageCollection()


def _or_default(field: str) -> str:
    """CEL of a field of `_COLLECTION`. The default `{}` of the whole is checked before it gets defaults of its own."""
    default = _DEFAULTS.model_dump(mode="json", by_alias=True)[field]
    return f"(has(self.{field}) ? self.{field} : {literal(default) if isinstance(default, str) else default})"


_DELETES_FROM_BROUGHT: Final = (
    "has(self.reclaimPolicy) && self.reclaimPolicy == 'Delete' && has(self.volume)"
    " && has(self.volume.persistentVolumeClaim)"
)

CACHE_RULES: Final[dict[str, tuple[Rule, ...]]] = {
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
    f"{_COLLECTION}.versionGracePeriod": (duration(f"spec.{_COLLECTION}.versionGracePeriod", "10s", "8760h"),),
    f"{_COLLECTION}.entryTTL": (duration(f"spec.{_COLLECTION}.entryTTL", "10s", "8760h"),),
    # Use is noted every quarter of it: more often would cost the file server more than the cache saves.
    f"{_COLLECTION}.minIdle": (duration(f"spec.{_COLLECTION}.minIdle", "10s", "8760h"),),
    f"{_COLLECTION}.maxSize": (
        Rule("quantity(string(self)).isGreaterThan(quantity('0'))", "must be more than 0, for example 80Gi"),
    ),
    "encoderCache.volume": (
        Rule(
            "has(self.volumeClaimTemplate) != has(self.persistentVolumeClaim)",
            "spec.encoderCache.volume: set exactly one of volumeClaimTemplate and persistentVolumeClaim",
        ),
    ),
    "encoderCache.volume.persistentVolumeClaim.subPath": SUB_PATH,
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
}
"""As `rules.FIELD_RULES`, of the encoder cache."""
