"""Which vLLM release an engine image holds, and how we know. Pure; never pulls or looks into an image."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from epd.api.types import ConnectorKind, EncoderCacheSpec, EngineSpec, EngineVersionOrigin, EngineVersionStatus

OLDEST: Final = (0, 28)
"""First release whose encoders report each item's metadata and emit no token (vLLM #50390, #52697)."""
OLDEST_MANAGED: Final = (0, 31)
"""First release with the hooks that the Managed connector needs (`ECConnectorBase` of vLLM 0.31)."""
NEWEST: Final = (0, 33)
"""Newest release whose flags were read; a newer one gets the same flags."""

_TAG: Final = re.compile(r"^v?(0)\.([0-9]+)(?:\.([0-9]+))?(?![0-9])")
"""Only `0.x`: every vLLM release is one, while a vendor's own count (`25.09-py3`, `2.8`) would hide engine changes."""
_VENDOR_TAG: Final = re.compile(r"vllm[-_]?v?(0)\.([0-9]+)(?:\.([0-9]+))?(?![0-9])")
"""As in `rocm7.0.0_ubuntu22.04_py3.10_pytorch_release_2.8_vllm_0.33.0`."""


@dataclass(frozen=True, kw_only=True)
class EngineVersion:
    """A vLLM release. `release` is (major, minor); flags and the cache depend on nothing finer."""

    release: tuple[int, int]
    text: str
    origin: EngineVersionOrigin

    @property
    def minor(self) -> str:
        """The release as `0.33`."""
        return ".".join(map(str, self.release))

    @property
    def status(self) -> EngineVersionStatus:
        """The version as `status.engineVersion` shows it."""
        return EngineVersionStatus(version=self.text, origin=self.origin)


def _from_match(match: re.Match[str], origin: EngineVersionOrigin) -> EngineVersion:
    numbers = [part for part in match.groups() if part is not None]
    return EngineVersion(release=(int(numbers[0]), int(numbers[1])), text=".".join(numbers), origin=origin)


def image_tag(image: str) -> str:
    """Return the tag of an image reference, without repository and digest; empty when there is none."""
    name = image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2]


def engine_version(engine: EngineSpec) -> EngineVersion:
    """Return the release: from `spec.engine.version`, else from the tag, else the newest one known (`Assumed`)."""
    if engine.version and (match := re.match(r"^([0-9]+)\.([0-9]+)(?:\.([0-9]+))?$", engine.version)):
        return _from_match(match, EngineVersionOrigin.SPEC)
    tag = image_tag(engine.image)
    if match := _VENDOR_TAG.search(tag) or _TAG.match(tag):
        return _from_match(match, EngineVersionOrigin.TAG)
    return EngineVersion(release=NEWEST, text=".".join(map(str, NEWEST)), origin=EngineVersionOrigin.ASSUMED)


def unsupported(version: EngineVersion, *, cache: EncoderCacheSpec | None = None) -> str | None:
    """Return why this operator can't run `version` with this encoder cache, with the fix; None when it can.

    A release newer than the newest known is let through: vLLM rarely removes what we use, and its own words at start
    are better than a refusal that only a new operator lifts.
    """
    managed = cache is not None and cache.connector is ConnectorKind.MANAGED
    if version.release >= (OLDEST_MANAGED if managed else OLDEST):
        return None
    found = f"vLLM {version.text} (read from {_WHENCE[version.origin]}) is older than "
    otherwise = "if the image holds one, say so in spec.engine.version."
    if version.release < OLDEST:
        return (
            f"{found}{_text(OLDEST)}, the first release whose encoders can stand alone. Use an image of "
            f"{_text(OLDEST_MANAGED if managed else OLDEST)} to {_text(NEWEST)}; {otherwise}"
        )
    return (
        f"{found}{_text(OLDEST_MANAGED)}, the first release that spec.encoderCache.connector: Managed can be loaded "
        f"into. Use an image of {_text(OLDEST_MANAGED)} to {_text(NEWEST)}, or connector: Example; {otherwise}"
    )


def _text(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))


_WHENCE: Final = {
    EngineVersionOrigin.SPEC: "spec.engine.version",
    EngineVersionOrigin.TAG: "the tag of spec.engine.image",
    EngineVersionOrigin.ASSUMED: "nowhere",
}
