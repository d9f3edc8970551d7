from __future__ import annotations

from typing import Any

import pytest

from epd.api.names import Role
from epd.topology.environment import engine_env
from epd.topology.storage import HOME_PATH
from unit.topology.objects import ABSENT, epd

EXAMPLE: dict[str, Any] = {"encoderCache.connector": "Example"}
CPU: dict[str, Any] = {"encode.resources": ABSENT}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def env(changes: dict[str, Any], role: Role = Role.ENCODE) -> dict[str, Any]:
    variables = engine_env(epd(changes).spec, role)
    assert len({variable["name"] for variable in variables}) == len(variables)
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in variables}


def test_a_uid_without_a_home_gets_one() -> None:
    found = env(EXAMPLE)
    assert {found.pop("USER"), found.pop("LOGNAME")} == {"epd"}
    assert (found.pop("VLLM_NO_USAGE_STATS"), found.pop("DO_NOT_TRACK")) == ("1", "1")
    assert found.pop("VLLM_MEDIA_URL_ALLOW_REDIRECTS") == "0"
    assert found.pop("HF_HOME") == "/var/lib/epd/hf-cache"
    assert found["HOME"] == HOME_PATH
    assert all(path.startswith(HOME_PATH) for path in found.values())
    assert {"VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME"} < set(found)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"huggingFace": {}}, {"HF_HOME": "/var/lib/epd/hf-cache"}),
        ({"huggingFace": {"offline": True}}, {"HF_HOME": "/var/lib/epd/hf-cache"} | OFFLINE),
        (
            {"huggingFace": {"tokenSecretRef": {"name": "hf", "key": "token"}}},
            {"HF_HOME": "/var/lib/epd/hf-cache", "HF_TOKEN": {"secretKeyRef": {"name": "hf", "key": "token"}}},
        ),
        ({"persistentVolumeClaim": {"claimName": "weights"}}, OFFLINE),
    ],
)
def test_hub(source: dict[str, Any], expected: dict[str, Any]) -> None:
    found = env({"model.source": source})
    names = ("HF_HOME", "HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    assert {name: found[name] for name in names if name in found} == expected


def test_only_a_cpu_pins_the_runner() -> None:
    assert env(CPU)["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert "VLLM_USE_V2_MODEL_RUNNER" not in env({})


def test_a_certificate_is_followed_by_asking() -> None:
    assert env({"engine.tls": {"secretName": "engines"}})["WATCHFILES_FORCE_POLLING"] == "1"
    assert "WATCHFILES_FORCE_POLLING" not in env({})


def test_redirects_of_media_can_be_allowed_again() -> None:
    allowed = {"engine.env": [{"name": "VLLM_MEDIA_URL_ALLOW_REDIRECTS", "value": "1"}]}
    assert env(allowed)["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] == "1"


def test_a_custom_connector_is_told_its_address() -> None:
    custom = {"encoderCache.connector": "Custom", "encoderCache.custom": {"module": "a", "class": "B"}}
    assert env(custom)["VLLM_EC_SIDE_CHANNEL_HOST"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert "VLLM_EC_SIDE_CHANNEL_HOST" not in env({})


def test_the_role_wins_over_the_engine_and_each_name_stands_once() -> None:
    changes: dict[str, Any] = {
        "engine.env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}],
        "encode.env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "C"}],
    }
    changes |= EXAMPLE
    assert engine_env(epd(changes).spec, Role.ENCODE)[-3:] == [
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "B", "value": "$(A)"},
        {"name": "C", "value": ""},
    ]
    assert engine_env(epd(changes).spec, Role.PREFILL_DECODE)[-2:] == [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)"},
    ]


PLACE = "/var/lib/epd/connector"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({}, PLACE),
        ({"engine.env": [{"name": "PYTHONPATH", "value": "/opt/acme:/b"}]}, f"{PLACE}:/opt/acme:/b"),
        ({"engine.env": [{"name": "PYTHONPATH", "value": ""}]}, PLACE),
        (
            {
                "engine.env": [{"name": "PYTHONPATH", "value": "/opt/acme"}],
                "encode.env": [{"name": "PYTHONPATH", "value": "/opt/own"}],
            },
            f"{PLACE}:/opt/own",
        ),
        (EXAMPLE, None),
        (EXAMPLE | {"engine.env": [{"name": "PYTHONPATH", "value": "/opt/acme"}]}, "/opt/acme"),
        ({"encode": {}, "encoderCache": ABSENT}, None),
    ],
)
def test_the_connectors_path_is_before_the_users(changes: dict[str, Any], path: str | None) -> None:
    assert env(changes).get("PYTHONPATH") == path


def test_the_users_path_may_refer_to_variables_before_it() -> None:
    given = [{"name": "SITE", "value": "/opt"}, {"name": "PYTHONPATH", "value": "$(SITE)/acme"}, {"name": "C"}]
    found = engine_env(epd({"engine.env": given}).spec, Role.ENCODE)[-3:]
    assert found == [given[0], {"name": "PYTHONPATH", "value": f"{PLACE}:$(SITE)/acme"}, {"name": "C", "value": ""}]


def test_only_the_managed_connector_is_told_the_pods_uid() -> None:
    assert env({})["EPD_POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert "EPD_POD_UID" not in env(EXAMPLE)
