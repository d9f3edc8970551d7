"""CEL rules of the CustomResourceDefinition, by field, with messages that tell the fix.

Only what one object alone can show; what needs prefix matching or looks into a podTemplate is in `validation`.
Transition rules stand on a parent that both versions have, or removing a field and adding it again would get round
them.
"""

from __future__ import annotations

from typing import Final

from epd.api.cache_rules import CACHE_RULES, CLAIM_RULES
from epd.api.cel import SUB_PATH, Rule, duration, literal
from epd.api.engine_rules import ENGINE_RULES, replicas_or_scaler
from epd.api.names import NAME_MAX_LENGTH, NAME_PATTERN
from epd.api.proxy import ProxySpec

ROOT_RULES: Final = (
    Rule(
        f"self.metadata.name.size() <= {NAME_MAX_LENGTH} && self.metadata.name.matches('{NAME_PATTERN}')",
        f"metadata.name: at most {NAME_MAX_LENGTH} characters, lower-case letters, digits and '-', beginning with a "
        "letter and not ending in '-', so that the names of Services and pods fit",
    ),
)

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
    *CLAIM_RULES,
)

_HAS_KEYS: Final = "has(self.auth) && has(self.auth.apiKeys)"

_PROXY_DEFAULTS: Final = ProxySpec()
_DEFAULT_MEMORY: Final = str(_PROXY_DEFAULTS.resources.limits["memory"])
_LARGEST_BODY: Final = (
    "quantity(has(self.media) && has(self.media.maxBodySize) ? string(self.media.maxBodySize) : "
    f"{literal(str(_PROXY_DEFAULTS.media.max_body_size))})"
)
_UNLIMITED_MEMORY: Final = (
    "has(self.resources) && !(has(self.resources.limits) && 'memory' in self.resources.limits)"  # taken as a whole
)
_MEMORY: Final = f"quantity(has(self.resources) ? string(self.resources.limits['memory']) : {literal(_DEFAULT_MEMORY)})"

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
    "model.source.huggingFace.cacheClaim.subPath": SUB_PATH,
    "model.source.persistentVolumeClaim.subPath": SUB_PATH,
    **ENGINE_RULES,
    **CACHE_RULES,
    "proxy": (
        replicas_or_scaler("spec.proxy"),
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
    "proxy.timeouts.request": (duration("spec.proxy.timeouts.request", "1s", "24h"),),
    "proxy.timeouts.encode": (duration("spec.proxy.timeouts.encode", "1s", "1h"),),
    "proxy.timeouts.idle": (duration("spec.proxy.timeouts.idle", "1s", "1h"),),
    "proxy.timeouts.queue": (duration("spec.proxy.timeouts.queue", "1s", "1h"),),
    "proxy.media.maxBodySize": (
        Rule(
            "quantity(string(self)).compareTo(quantity('1Ki')) >= 0"
            " && quantity(string(self)).compareTo(quantity('1Gi')) <= 0",
            "spec.proxy.media.maxBodySize must be between 1Ki and 1Gi: the proxy holds a request in memory",
        ),
    ),
}
"""Path below `spec`, `[]` for the items of a list -> rules on its value."""
