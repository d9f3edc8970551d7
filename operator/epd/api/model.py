"""`spec.model`: which model runs and where its weights come from. Shapes only."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, WithJsonSchema

from epd.api import shapes
from epd.api.fields import ApiModel, ClaimRef, JSONObject, SecretKeyRef

ServedName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\s-]\S*$")]


class HuggingFaceSource(ApiModel):
    """Weights from a hub."""

    token_secret_ref: SecretKeyRef | None = None
    """Secret key with a hub token, for gated models, for example `{name: hf, key: token}`."""
    cache_claim: ClaimRef | None = None
    """Claim that keeps downloads between pods (`HF_HOME`). Absent: every pod downloads for itself."""
    offline: bool = False
    """Never ask the hub; the model must be in the cache claim already. Needs a full 40-digit revision or none."""


class ModelSource(ApiModel):
    """Where the weights come from: exactly one member."""

    hugging_face: HuggingFaceSource | None = None
    """Weights from a hub, by the model's name."""
    persistent_volume_claim: ClaimRef | None = None
    """Weights on a claim, mounted read-only at one path in every role (the path enters vLLM's cache keys)."""


class ModelSpec(ApiModel):
    """Which model runs."""

    name: str = Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9._/][A-Za-z0-9._/:@-]*$")
    """The model's identity: its hub id, for example `Qwen/Qwen2.5-VL-3B-Instruct`, or what people call the weights on
    a claim."""
    revision: str | None = Field(None, min_length=1, max_length=253, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
    """Commit of the weights, all 40 digits; with a claim as source, a tag for its content. Quote it: YAML reads
    `66285546e2` as a number. Absent: whatever the hub's main branch holds when a pod starts."""
    served_names: list[ServedName] = Field(
        default_factory=list, max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Names that clients may put in `model`, for example `[qwen-vl]`; they may contain `/`. Default: the name."""
    dtype: str = Field(
        "auto",
        max_length=32,
        json_schema_extra={"enum": ["auto", "bfloat16", "float16", "float32", "half", "float"]},
    )
    """Data type of weights and activations, for example `bfloat16`; `auto` is as the model says."""
    quantization: str | None = Field(None, min_length=1, max_length=64, pattern="^[a-z0-9][a-z0-9_-]*$")
    """Quantization method, for example `awq`. Absent: as the model says."""
    max_model_len: int | None = Field(None, ge=1, le=100_000_000)
    """Longest prompt with its answer, in tokens, for example `32768`. Absent: as the model says."""
    processor_kwargs: JSONObject = Field(default_factory=dict)
    """Options of the model's media processor (`--mm-processor-kwargs`), for example `{max_pixels: 1003520}`."""
    media_io_kwargs: JSONObject = Field(default_factory=dict, alias="mediaIOKwargs")
    """Options for reading media, by kind (`--media-io-kwargs`), for example `{video: {num_frames: 32}}`."""
    media_limits: Annotated[JSONObject, WithJsonSchema(shapes.MEDIA_LIMITS)] = Field(default_factory=dict)
    """Most items of each kind in one request (`--limit-mm-per-prompt`), for example `{image: 8, video: 1}`. A kind
    with 0 is refused, and its encoder is not loaded."""
    source: ModelSource | None = None
    """Where the weights come from: exactly one member. Default: huggingFace."""
