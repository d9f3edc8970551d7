from __future__ import annotations

from types import SimpleNamespace

import pytest

from epd.connector import settings

LEAST = {"root": "/cache/", "version": "v1-m-0123456789ab", "claim": "ns/cache"}


def test_what_is_not_said_has_a_default():
    read = settings.read(LEAST)
    assert read == settings.Settings(
        root="/cache",
        version="v1-m-0123456789ab",
        claim="ns/cache",
        inputs={},
        min_idle_seconds=1800.0,
        local_bytes=1 << 30,
        probe_timeout_seconds=5.0,
        io_threads=8,
        write_timeout_seconds=30.0,
    )
    assert read.stamp_seconds == 450.0


def test_the_record_names_claim_and_inputs():
    record = settings.read(LEAST | {"inputs": {"model": "m"}}).record()
    assert (record.version, record.claim, record.layout, record.inputs) == (
        "v1-m-0123456789ab",
        "ns/cache",
        "Managed",
        {"model": "m"},
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"root": None}, "lacks root"),
        ({"claim": 5}, "lacks claim"),
        ({"local_bytes": "many"}, "local_bytes is no number: 'many'"),
        ({"io_threads": 0}, "io_threads must be above 0: 0"),
        ({"io_threads": 0.5}, "io_threads must be above 0: 0.5"),
        ({"probe_timeout_seconds": -1}, "probe_timeout_seconds must be above 0: -1"),
        ({"write_timeout_seconds": float("nan")}, "write_timeout_seconds must be above 0: nan"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(wrong, message):
    with pytest.raises(ValueError, match=message):
        settings.read(LEAST | wrong)


def _model(hidden: object, **vision: object) -> SimpleNamespace:
    config = SimpleNamespace(vision_config=SimpleNamespace(**vision))
    return SimpleNamespace(get_inputs_embeds_size=lambda: hidden, hf_config=config)


def test_the_width_counts_deepstack_layers():
    assert settings.width(_model(2048)) == 2048
    assert settings.width(_model(2048, deepstack_visual_indexes=[5, 11, 17])) == 8192
    assert settings.width(_model("?")) is None
    nested = SimpleNamespace(thinker_config=SimpleNamespace())
    assert settings.width(SimpleNamespace(get_inputs_embeds_size=lambda: 2048, hf_config=nested)) is None
    mapped = SimpleNamespace(vision_config=SimpleNamespace(), deepstack_layer_map=[])
    assert settings.width(SimpleNamespace(get_inputs_embeds_size=lambda: 2048, hf_config=mapped)) is None
    assert settings.width(SimpleNamespace()) is None


def test_workers_may_be_on_other_nodes():
    assert not settings.remote_workers(SimpleNamespace(nnodes=1, distributed_executor_backend="mp"))
    assert settings.remote_workers(SimpleNamespace(nnodes=2, distributed_executor_backend="mp"))
    assert settings.remote_workers(SimpleNamespace(distributed_executor_backend="ray"))
