"""CEL rules of engines: their flags and variables, and what a role may say beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from epd.api.cel import Rule, duration, literal, literal_map
from epd.api.owned import ALIASES, OWNED_ENV, OWNED_FLAGS, ROLE_FLAGS

_TENSOR: Final = (
    "(has(self.parallelism) && has(self.parallelism.tensor) ? self.parallelism.tensor : 1)"  # the computed default
)
_GPU_DIFFERS: Final = f"k.endsWith('/gpu') && string(self.resources.limits[k]) != string({_TENSOR})"
# through dyn(), because the cost of joining a plain string or a number as text is estimated without any bound
_FIRST_GPU: Final = f"dyn(self.resources.limits.filter(k, {_GPU_DIFFERS})[0])"

_ARG_NAME: Final = "self.split('=')[0].split('.')[0].replace('_', '-')"


def _args(refused: Mapping[str, str]) -> Rule:
    """Plain spellings: `--a`, `--a=b`, `--a_b`, `--a.key`, `-tp`. The rest is found by `owned.find_owned`."""
    table = dict(refused) | {alias: refused[flag] for alias, flag in ALIASES.items()}
    names = ", ".join(literal(flag) for flag in table)
    return Rule(
        f"!(self.startsWith('-') && {_ARG_NAME} in [{names}])",
        f"={_ARG_NAME} + ' ' + {literal_map(table)}[{_ARG_NAME}]",
    )


_ENV: Final = (
    Rule(
        f"!(self.name in [{', '.join(literal(name) for name in OWNED_ENV)}])",
        f"=self.name + ' ' + {literal_map(OWNED_ENV)}[self.name]",
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


def replicas_or_scaler(where: str) -> Rule:
    """Either the spec has the number of pods, or a scaler sets it."""
    return Rule(
        "!has(self.replicas) || !has(self.scaling) || !has(self.scaling.mode) || self.scaling.mode == 'Static'",
        f"={literal(where + '.replicas must be absent when scaling.mode is ')} + self.scaling.mode"
        " + ' (in a Kustomize patch: replicas: null)'",
    )


def _role(path: str) -> dict[str, tuple[Rule, ...]]:
    where = f"spec.{path}"
    return {
        path: (
            replicas_or_scaler(where),
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
        f"{path}.startupTimeout": (duration(f"{where}.startupTimeout", "10s", "24h"),),
        f"{path}.drainTimeout": (duration(f"{where}.drainTimeout", "0s", "24h"),),
        f"{path}.args[]": (_args(ROLE_FLAGS),),
        f"{path}.env[]": _ENV,
        f"{path}.env[].valueFrom": (_ENV_SOURCE,),
    }


ENGINE_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "engine.args[]": (_args(OWNED_FLAGS),),
    "engine.env[]": _ENV,
    "engine.env[].valueFrom": (_ENV_SOURCE,),
    **_role("encode"),
    **_role("prefillDecode"),
}
"""As `rules.FIELD_RULES`, of engines."""
