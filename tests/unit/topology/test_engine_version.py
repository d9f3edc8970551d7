from __future__ import annotations

import pytest

from epd.api.types import EncoderCacheSpec, EngineSpec, EngineVersionOrigin, EngineVersionStatus
from epd.topology.engine_version import engine_version, image_tag, unsupported

TAG, SPEC, ASSUMED = EngineVersionOrigin.TAG, EngineVersionOrigin.SPEC, EngineVersionOrigin.ASSUMED
DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("vllm", ""),
        ("vllm:v1", "v1"),
        ("host:5000/vllm", ""),
        ("host:5000/a/vllm:v1", "v1"),
        (f"host:5000/vllm:v1@{DIGEST}", "v1"),
        (f"host:5000/vllm@{DIGEST}", ""),
    ],
)
def test_image_tag(image: str, tag: str) -> None:
    assert image_tag(image) == tag


@pytest.mark.parametrize(
    ("image", "given", "text", "origin"),
    [
        ("vllm/vllm-openai:v0.33.0", None, "0.33.0", TAG),
        ("localhost/vllm-cpu:0.32.0", None, "0.32.0", TAG),
        ("vllm:v0.31.1-cu129", None, "0.31.1", TAG),
        ("vllm:v0.33.0rc2", None, "0.33.0", TAG),
        ("vllm:0.33", None, "0.33", TAG),
        ("rocm/vllm:rocm7.0.0_ubuntu22.04_py3.10_pytorch_release_2.8_vllm_0.33.0", None, "0.33.0", TAG),
        ("acme/vllm:cuda12-vllm-v0.30.2", None, "0.30.2", TAG),
        ("acme/vllm:0.9.1_vllm_0.33.0", None, "0.33.0", TAG),  # the vendor's own count comes first
        (f"vllm:v0.30.0@{DIGEST}", None, "0.30.0", TAG),
        ("vllm:v0.33.0", "0.32.1", "0.32.1", SPEC),
        (f"vllm@{DIGEST}", "0.32", "0.32", SPEC),
        (f"vllm@{DIGEST}", None, "0.33", ASSUMED),
        ("vllm", None, "0.33", ASSUMED),
        ("vllm:latest", None, "0.33", ASSUMED),
        ("nvcr.io/nvidia/vllm:25.09-py3", None, "0.33", ASSUMED),
        ("acme/vllm:1.2.0", None, "0.33", ASSUMED),
        ("acme/vllm:prod-0.33.0", None, "0.33", ASSUMED),
        ("vllm0.30.0:latest", None, "0.33", ASSUMED),
    ],
)
def test_version_and_origin(image: str, given: str | None, text: str, origin: EngineVersionOrigin) -> None:
    found = engine_version(EngineSpec(image=image, version=given))
    assert found.status == EngineVersionStatus(version=text, origin=origin)
    assert found.minor == ".".join(text.split(".")[:2])


@pytest.mark.parametrize("version", ["0.28", "0.28.0", "0.33.1", "0.34.0", "1.0"])
def test_known_and_newer_releases_are_supported(version: str) -> None:
    assert unsupported(engine_version(EngineSpec(image="vllm", version=version))) is None


@pytest.mark.parametrize("image", ["vllm:v0.27.1", "vllm:v0.9.0"])
def test_an_older_release_is_refused_with_the_fix(image: str) -> None:
    assert unsupported(engine_version(EngineSpec(image=image))) == (
        f"vLLM {image_tag(image)[1:]} (read from the tag of spec.engine.image) is older than 0.28, the first release "
        "whose encoders can stand alone. Use an image of 0.28 to 0.33; if the image holds one, say so in "
        "spec.engine.version."
    )


def cache(connector: str) -> EncoderCacheSpec:
    return EncoderCacheSpec.model_validate({"connector": connector})


@pytest.mark.parametrize(
    ("version", "connector", "supported"),
    [
        ("0.31.0", "Managed", True),
        ("0.30.1", "Managed", False),
        ("0.30.1", "Example", True),
        ("0.28.0", "Custom", True),
        ("0.34.0", "Managed", True),
    ],
)
def test_the_managed_connector_needs_a_newer_release(version: str, connector: str, supported: bool) -> None:
    found = unsupported(engine_version(EngineSpec(image="vllm", version=version)), cache=cache(connector))
    assert (found is None) is supported


def test_an_engine_without_the_managed_connectors_hooks_is_refused_with_both_fixes() -> None:
    assert unsupported(engine_version(EngineSpec(image="vllm:v0.30.0")), cache=cache("Managed")) == (
        "vLLM 0.30.0 (read from the tag of spec.engine.image) is older than 0.31, the first release that "
        "spec.encoderCache.connector: Managed can be loaded into. Use an image of 0.31 to 0.33, or connector: Example; "
        "if the image holds one, say so in spec.engine.version."
    )
    assert "Use an image of 0.31 to 0.33;" in (
        unsupported(engine_version(EngineSpec(image="vllm:v0.27.0")), cache=cache("Managed")) or ""
    )
