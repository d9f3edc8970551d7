from __future__ import annotations

from typing import Any

import pytest

from epd.api.types import EnvVar
from epd.topology.containers import Given, containers, env_var
from unit.topology.objects import ABSENT, epd

NOTHING = Given(args=[], env=[], env_from=[])
FIELD = {"fieldRef": {"fieldPath": "metadata.name"}}


def test_all_places() -> None:
    template = {
        "spec": {
            "containers": [
                {"name": "sidecar", "env": [{"name": "NOT", "value": "ours"}]},
                {"name": "engine", "env": [{"name": "C", "value": "3"}], "envFrom": [{"secretRef": {"name": "s"}}]},
            ]
        }
    }
    changes = {
        "engine.args": ["--a"],
        "engine.env": [{"name": "A", "value": "1"}],
        "encode.args": ["--b"],
        "encode.env": [{"name": "B", "valueFrom": FIELD}],
        "encode.podTemplate": template,
    }
    assert containers(epd(changes).spec) == {
        "engine": Given(args=["--a"], env=[{"name": "A", "value": "1"}], env_from=[]),
        "encode": Given(
            args=["--b"],
            env=[{"name": "B", "valueFrom": FIELD}, {"name": "C", "value": "3"}],
            env_from=[{"secretRef": {"name": "s"}}],
        ),
        "prefill-decode": NOTHING,
    }


def test_a_role_that_is_not_there() -> None:
    assert containers(epd({"encode": ABSENT}).spec) == {"engine": NOTHING, "prefill-decode": NOTHING}


@pytest.mark.parametrize("template", [{"spec": None}, {"spec": {"containers": None}}, {"spec": {"containers": ["x"]}}])
def test_a_template_of_another_shape_is_left_to_the_api_server(template: dict[str, Any]) -> None:
    assert containers(epd({"encode.podTemplate": template}).spec)["encode"] == NOTHING


def test_env_var() -> None:
    assert env_var(EnvVar(name="A")) == {"name": "A", "value": ""}
    assert env_var(EnvVar(name="A", value="1")) == {"name": "A", "value": "1"}
    assert env_var(EnvVar(name="A", value_from=FIELD)) == {"name": "A", "valueFrom": FIELD}
