"""The chart on a node: tested, upgraded, uninstalled and installed under another name while a deployment serves."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from cluster import Cluster
from cluster.chat import ask, picture
from cluster.conftest import CHART, IMAGE, OPERATOR_NAMESPACE
from cluster.deployed import Deployed
from cluster.steps import until

pytestmark = pytest.mark.node


def pods(epd: Deployed) -> set[str]:
    """UIDs of all pods of the deployment, the proxy's too."""
    said = epd.run("get", "pods", "-l", f"epd.dev/name={epd.name}", "-o", "jsonpath={.items[*].metadata.uid}")
    return set(said.split())


def operators(cluster: Cluster) -> list[str]:
    """UIDs of the operator's pods in its usual namespace."""
    where = ("-n", OPERATOR_NAMESPACE, "-l", "app.kubernetes.io/component=operator")
    return cluster.kubectl("get", "pods", *where, "-o", "jsonpath={.items[*].metadata.uid}").split()


def answers(epd: Deployed) -> tuple[int, str]:
    """What a red picture is called, on a fresh connection."""
    answer = ask(epd.url(), [picture("red")])
    return answer.status, answer.text


def test_the_operator_answers_through_its_service(cluster: Cluster, operator: None) -> None:
    said = cluster.helm("test", "epd-operator", "--namespace", OPERATOR_NAMESPACE, "--timeout", "120s")
    assert "Succeeded" in said


def test_an_upgrade_replaces_the_operator_and_nothing_else(
    cluster: Cluster, epd: Deployed, upgrade_operator: Callable[..., None]
) -> None:
    serving, (old,) = pods(epd), operators(cluster)
    upgrade_operator("--set", "logLevel=debug")
    try:
        (new,) = operators(cluster)
        assert new != old
        epd.wait_ready(seconds=60)
        assert pods(epd) == serving
        assert answers(epd) == (200, "red")
    finally:
        upgrade_operator()


def test_uninstalled_and_installed_under_another_name(
    cluster: Cluster, epd: Deployed, upgrade_operator: Callable[..., None]
) -> None:
    serving = pods(epd)
    uninstall = ("--cascade", "foreground", "--wait", "--timeout", "120s")
    try:
        cluster.helm("uninstall", "epd-operator", "--namespace", OPERATOR_NAMESPACE, *uninstall)
        assert operators(cluster) == []
        assert answers(epd) == (200, "red")
        # Whoever brings this back is the other operator.
        epd.run("delete", "service", epd.name)
        with cluster.namespace("epd-another") as another:
            where = ("--namespace", another, "--wait", "--timeout", "180s")
            said = cluster.helm("install", "another", CHART, *where, *IMAGE)
            assert "was left as it is: it belongs to\nrelease epd-operator in namespace epd-system." in said
            wanted = ("get", "service", epd.name, "--ignore-not-found", "-o", "name")
            until("the Service is back", lambda: bool(epd.run(*wanted)), seconds=60, every=0.5)
            epd.wait_ready(seconds=60)
            # kube-proxy programs the new address within its sync period, which may be after the object is there.
            until("the Service answers", lambda: _reachable(epd), seconds=30, every=0.5)
            assert answers(epd) == (200, "red")
            assert pods(epd) == serving
            cluster.helm("uninstall", "another", "--namespace", another, *uninstall)
    finally:
        upgrade_operator()
    epd.wait_ready(seconds=60)
    assert pods(epd) == serving


def _reachable(epd: Deployed) -> bool:
    try:
        return answers(epd)[0] == 200
    except httpx.TransportError:
        return False
