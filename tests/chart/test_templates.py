from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

import epd
from chart.helm import CHART, REPOSITORY, Helm, named, the
from chart.matrix import EVERYTHING, MATRIX
from chart.pod_security import violations

pytestmark = pytest.mark.chart

CLUSTER_SCOPED = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
RBAC = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?")


def test_lint_has_nothing_to_say(helm: Helm, values: dict[str, Any]) -> None:
    said = helm.call("lint", "--strict", str(CHART), values=values).stdout
    assert re.findall(r"\[(?:WARNING|ERROR)\].*", said) == []


def test_a_quick_lint_of_the_bare_chart_passes(helm: Helm) -> None:
    helm.call("lint", "--strict", str(CHART))
    helm.call("lint", "--strict", str(CHART), "--values", str(CHART / "ci" / "lint-values.yaml"))


def test_objects_are_whole_and_named_within_the_limits(helm: Helm, values: dict[str, Any]) -> None:
    manifests = helm.template(values)
    identities = [(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests]
    assert len(set(identities)) == len(identities)
    for kind, namespace, name in identities:
        assert (namespace is None) == (kind in CLUSTER_SCOPED), (kind, name)
        if kind not in CLUSTER_SCOPED | RBAC:
            assert DNS_LABEL.fullmatch(name), (kind, name)


def test_every_object_says_whose_it_is(helm: Helm, values: dict[str, Any]) -> None:
    for manifest in helm.template(values):
        labels = manifest["metadata"]["labels"]
        component = "test" if manifest["kind"] == "Pod" else "operator"
        assert labels["app.kubernetes.io/component"] == component
        assert labels["app.kubernetes.io/instance"] == "epd-operator"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/part-of"] == "epd-operator"
        assert labels["app.kubernetes.io/version"] == epd.__version__
        assert labels["helm.sh/chart"] == f"epd-operator-{epd.__version__}"
        assert labels.items() >= values.get("commonLabels", {}).items()
        assert [v for v in labels.values() if not LABEL_VALUE.fullmatch(v)] == []


def test_pods_pass_the_restricted_standard(helm: Helm, values: dict[str, Any]) -> None:
    manifests = helm.template(values)
    specs = [the(manifests, "Deployment")["spec"]["template"]["spec"], the(manifests, "Pod")["spec"]]
    assert [violations(spec) for spec in specs] == [[], []]
    for spec in specs:
        for container in spec["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert container["resources"]["limits"].keys() == {"memory"}


def test_selectors_find_their_pods_and_nothing_else(helm: Helm, values: dict[str, Any]) -> None:
    manifests = helm.template(values)
    deployment, service = the(manifests, "Deployment"), the(manifests, "Service")
    pod = deployment["spec"]["template"]["metadata"]["labels"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector == service["spec"]["selector"]
    assert pod.items() >= selector.items()
    assert not the(manifests, "Pod")["metadata"]["labels"].items() >= selector.items()
    for policy in named(manifests, "NetworkPolicy"):
        assert policy["spec"]["podSelector"]["matchLabels"] == selector
    for monitor in named(manifests, "ServiceMonitor"):
        assert service["metadata"]["labels"].items() >= monitor["spec"]["selector"]["matchLabels"].items()


def test_selector_survives_an_upgrade_of_the_chart(helm: Helm) -> None:
    selector = the(helm.template(), "Deployment")["spec"]["selector"]["matchLabels"]
    assert selector == {
        "app.kubernetes.io/name": "epd-operator",
        "app.kubernetes.io/instance": "epd-operator",
        "app.kubernetes.io/component": "operator",
    }


def test_one_operator_at_a_time(helm: Helm, values: dict[str, Any]) -> None:
    spec = the(helm.template(values), "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_pod_values_arrive(helm: Helm) -> None:
    template = the(helm.template(EVERYTHING), "Deployment")["spec"]["template"]
    spec = template["spec"]
    assert template["metadata"]["annotations"] == EVERYTHING["podAnnotations"]
    assert template["metadata"]["labels"].items() >= EVERYTHING["podLabels"].items()
    assert spec["imagePullSecrets"] == EVERYTHING["image"]["pullSecrets"]
    assert spec["serviceAccountName"] == "epd"
    assert spec["securityContext"]["fsGroup"] == 65532
    for field in ("terminationGracePeriodSeconds", "priorityClassName", "nodeSelector", "tolerations", "affinity"):
        assert spec[field] == EVERYTHING[field]


def test_user_assigned_by_the_platform(helm: Helm) -> None:
    spec = the(helm.template(MATRIX["assigned user"]), "Deployment")["spec"]["template"]["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_probes_ask_the_health_port(helm: Helm) -> None:
    (container,) = the(helm.template(), "Deployment")["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"metrics": 8080, "health": 8081}
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert probes == {
        "startupProbe": {"path": "/healthz", "port": "health"},
        "readinessProbe": {"path": "/readyz", "port": "health"},
        "livenessProbe": {"path": "/healthz", "port": "health"},
    }


def test_service_monitor(helm: Helm) -> None:
    assert named(helm.template(), "ServiceMonitor") == []
    monitor = the(helm.template(EVERYTHING), "ServiceMonitor")
    assert monitor["spec"]["endpoints"] == [{"port": "metrics", "interval": "15s"}]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.parametrize(
    ("values", "ingress"),
    [
        (MATRIX["closed ports"], []),
        (
            EVERYTHING,
            [{"from": EVERYTHING["networkPolicy"]["metricsFrom"], "ports": [{"port": "metrics", "protocol": "TCP"}]}],
        ),
    ],
    ids=["nobody", "monitoring"],
)
def test_network_policy(helm: Helm, values: dict[str, Any], ingress: list[Any]) -> None:
    spec = the(helm.template(values), "NetworkPolicy")["spec"]
    assert (spec["policyTypes"], spec["ingress"]) == (["Ingress"], ingress)


def test_image_must_be_named(helm: Helm) -> None:
    assert "image.repository is not set" in helm.refusal({})


def test_foreign_service_account_must_be_named(helm: Helm) -> None:
    values = {"image": {"repository": REPOSITORY}, "serviceAccount": {"create": False}}
    assert "serviceAccount.name: name the ServiceAccount to use" in helm.refusal(values)


@pytest.mark.parametrize("version", ["1.24.17", "1.29.9"])
def test_old_kubernetes_is_refused(helm: Helm, version: str) -> None:
    said = helm.refusal({"image": {"repository": REPOSITORY}}, "--kube-version", version)
    assert f"epd-operator needs Kubernetes 1.30 or later; this cluster has v{version}" in said


@pytest.mark.parametrize("version", ["1.30.0", "1.30.4-gke.1348000", "1.35.4", "2.0.0"])
def test_newer_kubernetes_is_fine(helm: Helm, version: str) -> None:
    assert helm.template(None, "--kube-version", version) == helm.template()


def test_chart_and_operator_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (epd.__version__, epd.__version__)


def test_releases_of_one_name_in_two_namespaces_share_nothing_but_the_crd(helm: Helm) -> None:
    def identities(namespace: str) -> set[tuple[str, str | None, str]]:
        manifests = helm.template({"watchNamespaces": [namespace]}, namespace=namespace)
        return {(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests}

    shared = identities("team-a") & identities("team-b")
    assert shared == {("CustomResourceDefinition", None, "epddeployments.epd.dev")}
