"""What the connector is told in `ec_connector_extra_config`, and the deductions from vLLM's configuration. No I/O."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .store import Record

_LOCAL_BYTES: Final = 1 << 30
"""1 GiB of shared memory: about 50 pictures of 10 MB in 16 bit at once, twice what an engine decodes side by side."""
_PROBE_SECONDS: Final = 5.0
"""Longer than any healthy volume needs for a MiB, or an item with pixels waits for its entry; shorter than a client's
patience."""
_IO_THREADS: Final = 8
"""Lookups side by side; also the most that a hung mount can hold."""
_WRITE_SECONDS: Final = 30.0
"""An encoder's step waits this long once, then the store is in doubt and nothing waits for it."""
_STAMPS_PER_IDLE: Final = 4
"""Stamps within the time after which the collector takes an entry for unused: three may be lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """`root` and `version` say where entries lie, `claim` (`<namespace>/<name>`) and `inputs` go into the record."""

    root: str
    version: str
    claim: str
    inputs: Mapping[str, Any]
    min_idle_seconds: float
    local_bytes: int
    probe_timeout_seconds: float
    io_threads: int
    write_timeout_seconds: float

    def record(self) -> Record:
        """Return the record that makes the version's directory ours."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return Record(version=self.version, claim=self.claim, layout="Managed", inputs=self.inputs, created=now)

    @property
    def stamp_seconds(self) -> float:
        """Between two use stamps of one entry by one engine."""
        return self.min_idle_seconds / _STAMPS_PER_IDLE


def read(extra: Mapping[str, Any]) -> Settings:
    """Read the extra configuration. Raises ValueError, which ends the engine's start with this message."""
    lacking = [key for key in ("root", "version", "claim") if not isinstance(extra.get(key), str)]
    if lacking:
        raise ValueError(f"ManagedECConnector: ec_connector_extra_config lacks {', '.join(lacking)}")
    return Settings(
        root=str(extra["root"]).rstrip("/"),
        version=extra["version"],
        claim=extra["claim"],
        inputs=extra.get("inputs") or {},
        min_idle_seconds=_positive(extra, "min_idle_seconds", 1800.0),
        local_bytes=int(_positive(extra, "local_bytes", _LOCAL_BYTES)),
        probe_timeout_seconds=_positive(extra, "probe_timeout_seconds", _PROBE_SECONDS),
        io_threads=int(_positive(extra, "io_threads", _IO_THREADS, least=1)),
        write_timeout_seconds=_positive(extra, "write_timeout_seconds", _WRITE_SECONDS),
    )


def width(model_config: Any) -> int | None:
    """Return the width of an encoder's output as far as the model's configuration tells; None if it does not.

    DeepStack models append the features of some layers to each embedding (vllm/model_executor/models/qwen3_vl.py);
    where other modalities or other models of this kind do so, only their encoders know (qwen3_omni_moe_thinker.py,
    granite4_vision.py).
    """
    try:
        hidden = int(model_config.get_inputs_embeds_size())
        config = model_config.hf_config
        vision = getattr(config, "vision_config", None)
        if vision is None or any("deepstack" in name for name in vars(config)):
            return None
        layers = getattr(vision, "deepstack_visual_indexes", None) or ()
        return hidden * (1 + len(layers))
    except (AttributeError, TypeError, ValueError):
        return None


def remote_workers(parallel_config: Any) -> bool:
    """Tell whether workers may be on other nodes than the scheduler, where its shared memory is not."""
    backend = getattr(parallel_config, "distributed_executor_backend", None)
    return getattr(parallel_config, "nnodes", 1) > 1 or backend == "ray"


def _positive(extra: Mapping[str, Any], key: str, default: float, *, least: float = 0) -> float:
    value = extra.get(key, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"ManagedECConnector: {key} is no number: {value!r}") from None
    if not (number > 0 and number >= least):
        raise ValueError(f"ManagedECConnector: {key} must be above 0: {value!r}")
    return number
