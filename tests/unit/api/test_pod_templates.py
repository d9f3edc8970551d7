"""What each kind of pod refuses; tests of `validation` have the ways in which it can be written."""

from __future__ import annotations

from typing import Any

import pytest

from epd.api.pod_templates import COLLECTOR, ENGINE, PROXY, PodTemplateRules, pod_template_problems


def refused(template: dict[str, Any], rules: PodTemplateRules) -> list[str]:
    return [problem.path.removeprefix("p.") for problem in pod_template_problems("p", template, rules)]


def pod(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


def container(rules: PodTemplateRules, **fields: Any) -> dict[str, Any]:
    return pod(containers=[{"name": rules.container, **fields}])


@pytest.mark.parametrize("rules", [ENGINE, COLLECTOR, PROXY], ids=["engine", "collector", "proxy"])
def test_what_all_refuse(rules: PodTemplateRules) -> None:
    for field in ("serviceAccountName", "serviceAccount", "restartPolicy"):
        assert refused(pod(**{field: "x"}), rules) == [f"spec.{field}"]
    for field in ("image", "command", "args", "ports"):
        assert refused(container(rules, **{field: []}), rules) == [f"spec.containers[0].{field}"]
    assert refused({"metadata": {"labels": {"epd.dev/x": "y"}}}, rules) == ["metadata.labels[epd.dev/x]"]


@pytest.mark.parametrize(("rules", "refuses"), [(ENGINE, True), (COLLECTOR, True), (PROXY, False)])
def test_who_shares_files_shares_the_user(rules: PodTemplateRules, refuses: bool) -> None:
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        assert bool(refused(pod(securityContext={field: 1}), rules)) is refuses
    assert bool(refused(container(rules, securityContext={"runAsUser": 1}), rules)) is refuses


@pytest.mark.parametrize(
    ("rules", "volumes"),
    [
        (ENGINE, {"encoder-cache", "model", "connector", "engine-tls"}),
        (COLLECTOR, {"encoder-cache"}),
        (PROXY, {"tls", "api-keys", "engine-ca"}),
    ],
)
def test_volumes_of_ours(rules: PodTemplateRules, volumes: set[str]) -> None:
    names = ("encoder-cache", "model", "connector", "engine-tls", "tls", "api-keys", "engine-ca", "shm", "mine")
    assert {name for name in names if refused(pod(volumes=[{"name": name}]), rules)} == volumes


def test_a_place_below_ours_is_ours() -> None:
    def mounts(path: str) -> dict[str, Any]:
        return container(ENGINE, volumeMounts=[{"name": "a", "mountPath": path}])

    assert refused(mounts("/var/lib/epd/connector/epd_connector"), ENGINE) == ["spec.containers[0].volumeMounts[0]"]
    assert refused(mounts("/var/lib/epd/connectors"), ENGINE) == []


def test_containers_of_the_users_own_are_left_alone() -> None:
    assert refused(pod(containers=[{"name": "sidecar", "image": "x", "args": []}]), ENGINE) == []
