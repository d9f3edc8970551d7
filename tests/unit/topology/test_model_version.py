from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.api.types import EPDDeployment, Spec
from epd.topology.canonical import canonical_json, digest
from epd.topology.model_version import (
    RECORD_LIMIT,
    harmless_names,
    model_version,
    record_inputs,
    version_inputs,
)
from unit.topology.objects import ABSENT, E_PD, epd


def version(changes: dict[str, Any]) -> str:
    return model_version(epd(changes).spec)


def test_what_it_is_made_of() -> None:
    spec = epd(
        {
            "model.dtype": "bfloat16",
            "model.quantization": "awq",
            "model.processorKwargs": {"max_pixels": 1},
            "model.mediaIOKwargs": {"video": {"num_frames": 8}},
            "model.source": {"persistentVolumeClaim": {"claimName": "weights", "subPath": "qwen"}},
            "encoderCache.salt": "2",
            "encoderCache.hashAlgorithm": "SHA256",
            "engine.args": ["--max_num_seqs=8", "--hf-overrides", '{"b": 1, "a": 2}'],
            "engine.env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}, {"name": "X", "value": "1"}],
            "prefillDecode.env": [{"name": "Y", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        }
    ).spec
    assert version_inputs(spec) == {
        "name": "Qwen/Qwen2.5-VL-3B-Instruct",
        "revision": "66285546d2b821cf421d4f5eb2576359d3770cd3",
        "source": {"claimName": "weights", "subPath": "qwen"},
        "dtype": "bfloat16",
        "quantization": "awq",
        "processorKwargs": {"max_pixels": 1},
        "mediaIOKwargs": {"video": {"num_frames": 8}},
        "hashAlgorithm": "SHA256",
        "salt": "2",
        "engine": "vllm:0.33",
        "containers": {
            "engine": {"args": [["--hf-overrides", '{"a":2,"b":1}']], "env": {"X": "1"}},
            "prefill-decode": {"env": {"Y": {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}}},
        },
    }
    assert harmless_names(spec) == ["--max-num-seqs", "VLLM_LOGGING_LEVEL"]
    assert model_version(spec) == f"v1-qwen2-5-vl-3b-instruct-{digest(version_inputs(spec), length=12)}"


def test_names_of_today_stay_as_they_are() -> None:
    """Fails when equal inputs get another name: every cache in the field would be empty after an upgrade."""
    assert version({}) == "v1-qwen2-5-vl-3b-instruct-a67d506de149"


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("tinyvlm", "tinyvlm"),
        ("Org/Some_Model.v2", "some-model-v2"),
        ("a/" + "x" * 39 + ".yz", "x" * 39),
        ("a/" + "x" * 100, "x" * 40),
        ("../..", "model"),
    ],
)
def test_slug(name: str, slug: str) -> None:
    found = version({"model.name": name})
    assert found.rpartition("-")[0] == f"v1-{slug}"


@given(st.from_regex(r"[A-Za-z0-9._/][A-Za-z0-9._/:@-]{0,252}", fullmatch=True))
def test_it_is_a_label_value_and_a_directory_name(name: str) -> None:
    found = model_version(Spec.model_validate({**E_PD, "model": {"name": name}}))
    assert len(found) <= 63
    assert found.isascii()
    assert found.replace("-", "").isalnum()
    assert found.startswith("v1-")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["--a", "b"], ["--a=b"]),
        (["--a_b", "c"], ["--a-b=c"]),
        (["--a", "1", "--b", "2"], ["--b", "2", "--a", "1"]),
        (["--a", '{"x": 1, "y": 2}'], ["--a", '{"y":2,"x":1}']),
        (["--max-num-seqs", "8"], []),
        (["--max_num_seqs=8"], ["--max-num-seqs", "16"]),
        (["--no-enable-prefix-caching"], ["--enable-prefix-caching"]),
        (["--speculative-config.method", "ngram"], []),
        (["--enable-lora", "--lora-modules", "a=/a"], ["--enable-lora", "--lora-modules", "a=/a", "b=/b"]),
        (["stray", "--lora-modules", "a=/a"], ["stray"]),
    ],
)
def test_the_same_cache(one: list[str], other: list[str]) -> None:
    assert version({"engine.args": one}) == version({"engine.args": other})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["--a", "b"], ["--a", "c"]),
        (["--a", "1", "--a", "2"], ["--a", "2", "--a", "1"]),
        (["--unknown"], []),
        (["--max-num-s", "8"], []),  # an abbreviation: what it stands for depends on the release
        (
            ["--enable-tower-connector-lora", "--lora-modules", "a=/a"],
            ["--enable-tower-connector-lora", "--lora-modules", "a=/b"],
        ),
        (["--enable_tower", "--lora-modules", "a=/a"], ["--enable_tower", "--lora-modules", "a=/b"]),
    ],
)
def test_another_cache(one: list[str], other: list[str]) -> None:
    assert version({"engine.args": one}) != version({"engine.args": other})


def test_tower_adapters_of_one_place_count_in_every_place() -> None:
    tower = {"engine.args": ["--enable-tower-connector-lora"]}
    assert version(tower) != version(tower | {"encode.args": ["--lora-modules", "a=/a"]})


def test_variables_of_a_pod_template_count() -> None:
    def template(name: str) -> dict[str, Any]:
        env = [{"name": name, "value": "1"}]
        return {"encode.podTemplate": {"spec": {"containers": [{"name": "engine", "env": env}]}}}

    assert version(template("X")) != version({})
    assert version(template("OMP_NUM_THREADS")) == version({})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("vllm:v0.33.0", "other/vllm:v0.33.1-cu130", True),
        ("vllm:v0.33.0", "vllm:v0.32.0", False),
        ("vllm:latest", "other/vllm:latest", False),  # only assumed to be 0.33
        ("vllm:latest", "vllm:v0.33.0", False),
    ],
)
def test_the_engine_counts_by_its_minor_release(one: str, other: str, same: bool) -> None:
    assert (version({"engine.image": one}) == version({"engine.image": other})) is same


def test_a_role_without_flags_changes_nothing() -> None:
    assert version({}) == version({"encode": ABSENT})


def test_whole_floats_are_integers() -> None:
    assert version({"model.processorKwargs": {"a": 1.0}}) == version({"model.processorKwargs": {"a": 1}})


@given(st.randoms(use_true_random=False))
def test_the_order_of_fields_does_not_matter(random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            return dict(random.sample([(key, shuffled(item)) for key, item in value.items()], len(value)))
        return value

    spec = copy.deepcopy(E_PD) | {"engine": {"image": "vllm:v0.33.0", "env": [{"name": "X", "value": "1"}]}}
    document = {"metadata": {"name": "a"}, "spec": spec}
    one, other = (EPDDeployment.model_validate(each) for each in (document, shuffled(document)))
    assert model_version(one.spec) == model_version(other.spec)


def test_a_record_has_what_the_version_is_made_of() -> None:
    given = epd({"model.dtype": "float16", "engine.args": ["--other", "1"]}).spec
    assert record_inputs(given) == version_inputs(given)


def test_a_record_has_no_values_of_variables() -> None:
    """They may be secrets, and the record lies on a volume that others may read."""
    inputs = record_inputs(epd({"encode.env": [{"name": "ACME_KEY", "value": "s3cret"}]}).spec)
    assert inputs["containers"] == {
        "encode": {"env": {"ACME_KEY": {"sha256": digest("s3cret", length=12), "bytes": 8}}}
    }
    other = record_inputs(epd({"encode.env": [{"name": "ACME_KEY", "value": "other!"}]}).spec)
    assert inputs != other


def test_a_record_is_bounded_and_keeps_what_is_small() -> None:
    words = ["--unknown"] + ["x" * 4096] * 255
    given = epd({"engine.args": words, "encode.args": words, "model.processorKwargs": {"a": "x" * 20_000}}).spec
    inputs = record_inputs(given)
    assert len(canonical_json(inputs)) <= RECORD_LIMIT
    assert {key: value for key, value in inputs.items() if key not in ("containers", "processorKwargs")} == {
        key: value for key, value in version_inputs(given).items() if key not in ("containers", "processorKwargs")
    }
    assert set(inputs["containers"]) == {"sha256", "bytes"}
    assert inputs["containers"]["bytes"] > 2_000_000


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=9000), max_size=9))
def test_any_record_is_bounded(kwargs: dict[str, str]) -> None:
    assert len(canonical_json(record_inputs(epd({"model.processorKwargs": kwargs}).spec))) <= RECORD_LIMIT
