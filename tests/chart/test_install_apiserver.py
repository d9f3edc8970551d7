"""Install, upgrade, uninstall and install under another name, against a real API server."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.helm import CHART, the
from chart.live import CRD, Live, epd
from chart.matrix import EVERYTHING
from cluster import paths
from cluster.steps import HarnessError
from epd.api import names
from epd.api.types import EPDDeployment
from epd.manifests import Context, desired

pytestmark = pytest.mark.apiserver

FILE = f"{names.GROUP}_{names.PLURAL}.yaml"
OPERATOR = "system:serviceaccount:epd-system:epd-operator"
CLAIM = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
CACHE = {"volume": {"volumeClaimTemplate": {"spec": CLAIM}}}
RELEASE = "app.kubernetes.io/instance=epd-operator"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The chart of a later release, whose schema has one field more."""
    return chart_with_version(tmp_path / "later", "99.0.0", extra_field=True)


def chart_with_version(folder: Path, version: str, *, extra_field: bool = False) -> Path:
    chart = folder / "epd-operator"
    shutil.copytree(CHART, chart)
    about = yaml.safe_load((chart / "Chart.yaml").read_text()) | {"version": version, "appVersion": version}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about))
    if extra_field:
        crd = yaml.safe_load((chart / "files" / FILE).read_text())
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"]["later"] = {"type": "string", "maxLength": 8, "description": "A field to come."}
        (chart / "files" / FILE).write_text(yaml.safe_dump(crd))
    return chart


def has_later_field(crd: dict[str, Any]) -> bool:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return "later" in schema["properties"]["spec"]["properties"]


def hand_over(live: Live, said: str) -> None:
    """Runs the commands that the notes give."""
    commands = re.findall(r"kubectl (?:label|annotate) .*", said.replace("\\\n", " "))
    assert len(commands) == 2
    for command in commands:
        live.kubectl(*shlex.split(command)[1:])


def test_the_api_server_takes_every_object(live: Live, values: dict[str, Any]) -> None:
    for namespace in ("epd-system", "team-a", "team-b"):
        live.namespace(namespace)
    manifests = live.helm.template(values)
    # No CustomResourceDefinitions of the Prometheus operator here; a Pod needs its ServiceAccount to be there.
    known = [m for m in manifests if m["kind"] not in {"ServiceMonitor", "Pod"}]
    assert len(known) >= 3
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": known})
    said = live.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=listed)
    assert said.count("serverside-applied (server dry run)") == len(known)


def test_pods_are_admitted_where_the_restricted_standard_is_enforced(live: Live) -> None:
    live.namespace("epd-restricted", RESTRICTED)
    live.kubectl("create", "serviceaccount", "default", "-n", "epd-restricted")  # no controllers here to make it
    live.install("epd-operator", "epd-restricted")
    manifests = live.helm.template(namespace="epd-restricted")
    template = the(manifests, "Deployment")["spec"]["template"]
    operator = {"apiVersion": "v1", "kind": "Pod"} | template
    operator["metadata"] |= {"name": "operator", "namespace": "epd-restricted"}
    for pod in (operator, the(manifests, "Pod")):
        live.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(pod))
    del operator["spec"]["containers"][0]["securityContext"]["capabilities"]
    with pytest.raises(HarnessError, match="violates PodSecurity"):
        live.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(operator))


def test_the_operator_may_do_what_it_does_and_no_more(live: Live) -> None:
    live.install("epd-operator", "epd-system")
    assert live.can(OPERATOR, "patch", "apps/deployments", "team-a")
    assert live.can(OPERATOR, "patch", "epd.dev/epddeployments/status", "team-a")
    assert live.can(OPERATOR, "patch", "epd.dev/epddeployments", "team-a"), "finalizers are fields of the object itself"
    assert not live.can(OPERATOR, "create", "epd.dev/epddeployments", "team-a")
    assert not live.can(OPERATOR, "delete", "epd.dev/epddeployments", "team-a")
    assert not live.can(OPERATOR, "get", "/secrets", "team-a")
    assert not live.can(OPERATOR, "create", "/pods", "team-a")


def test_a_namespaced_operator_may_do_nothing_elsewhere(live: Live) -> None:
    live.namespace("team-a")
    live.install("epd-operator", "epd-system", {"watchNamespaces": ["team-a"]})
    assert live.can(OPERATOR, "patch", "apps/deployments", "team-a")
    assert not live.can(OPERATOR, "list", "epd.dev/epddeployments", "team-b")
    assert not live.can(OPERATOR, "list", "/pods", "epd-system")


def test_the_operator_may_apply_every_child_and_no_more_rights_than_its_own(live: Live) -> None:
    live.namespace("team-a", RESTRICTED)
    live.install("epd-operator", "epd-system", {"watchNamespaces": ["team-a"]})
    live.kubectl("create", "-n", "team-a", "-f", "-", stdin=json.dumps(epd("qwen", encode={}, encoderCache=CACHE)))
    children = desired(
        EPDDeployment.model_validate(live.get("epd", "qwen", "-n", "team-a")),
        Context(operator_image="x", operator_image_pull_policy="Never", preflight=True),
    )
    assert len(children) >= 8
    apply = ("apply", "--server-side", "--validate=strict", "--as", OPERATOR, "-f", "-")
    listed = {"apiVersion": "v1", "kind": "List", "items": list(children)}
    assert live.kubectl(*apply, stdin=json.dumps(listed)).count("serverside-applied") == len(children)
    (role,) = (child for child in children if child["kind"] == "Role")
    role["rules"] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}]
    with pytest.raises(HarnessError, match="attempting to grant RBAC permissions not currently held"):
        live.kubectl(*apply, stdin=json.dumps(role))
    live.kubectl("delete", "--as", OPERATOR, "--wait=false", "-f", "-", stdin=json.dumps(listed))


def test_uninstall_keeps_the_crd_and_the_deployments(live: Live) -> None:
    live.install("epd-operator", "epd-system")
    live.kubectl("create", "-n", "epd-system", "-f", "-", stdin=json.dumps(epd("qwen")))
    assert f"[CustomResourceDefinition] {CRD}" in live.uninstall("epd-operator", "epd-system")
    assert live.get("epd", "qwen", "-n", "epd-system")["spec"]["model"]["name"] == "m"
    left = live.kubectl("get", "deploy,svc,sa,clusterroles,clusterrolebindings", "-A", "-l", RELEASE)
    assert left == ""


def test_uninstall_takes_the_crd_along_where_it_is_not_kept(live: Live) -> None:
    live.install("epd-operator", "epd-system", {"crds": {"keep": False}})
    live.uninstall("epd-operator", "epd-system")
    live.kubectl("wait", "--for=delete", f"crd/{CRD}", "--timeout=30s")
    assert not live.has_crd()


def test_install_again_under_the_same_name(live: Live) -> None:
    live.install("epd-operator", "epd-system")
    live.uninstall("epd-operator", "epd-system")
    assert "was left as it is" not in live.install("epd-operator", "epd-system").stdout
    assert "CustomResourceDefinition" in live.manifest("epd-operator", "epd-system")


def test_install_under_another_name_leaves_the_kept_crd(live: Live) -> None:
    live.install("old", "epd-old")
    live.uninstall("old", "epd-old")
    before = live.crd()
    said = live.install("new", "epd-new").stdout
    assert "was left as it is: it belongs to\nrelease old in namespace epd-old." in said
    assert live.crd() == before
    live.upgrade("new", "epd-new", {"logLevel": "debug"})
    assert live.crd() == before
    assert f"[CustomResourceDefinition] {CRD}" not in live.uninstall("new", "epd-new")
    assert live.crd() == before


def test_the_commands_of_the_notes_hand_the_crd_over(live: Live, later: Path) -> None:
    live.install("old", "epd-old")
    live.uninstall("old", "epd-old")
    hand_over(live, live.install("new", "epd-new").stdout)
    said = live.upgrade("new", "epd-new", chart=later).stdout
    assert "was left as it is" not in said
    assert live.crd_owner() == ("new", "epd-new")
    assert has_later_field(live.crd())
    live.uninstall("new", "epd-new")
    assert live.has_crd()


def test_an_upgrade_of_its_release_updates_the_crd(live: Live, later: Path) -> None:
    live.install("epd-operator", "epd-system")
    assert not has_later_field(live.crd())
    live.upgrade("epd-operator", "epd-system", chart=later)
    assert has_later_field(live.crd())
    assert live.crd()["metadata"]["labels"]["app.kubernetes.io/version"] == "99.0.0"


@pytest.mark.parametrize("verb", ["install", "upgrade"])
def test_an_operator_never_comes_up_on_an_older_schema_of_others(live: Live, later: Path, verb: str) -> None:
    live.install("old", "epd-old")
    live.uninstall("old", "epd-old")
    if verb == "upgrade":
        live.install("new", "epd-new")
    act = live.install if verb == "install" else live.upgrade
    refused = act("new", "epd-new", chart=later, check=False)
    assert refused.code != 0
    assert "invalid ownership metadata" in refused.stderr
    assert '"meta.helm.sh/release-name" must equal "new": current value is "old"' in refused.stderr
    assert "99.0.0" not in live.kubectl("get", "deployments", "-n", "epd-new", "-o", "yaml")
    assert not has_later_field(live.crd())
    act("new", "epd-new", None, "--take-ownership", chart=later)
    assert live.crd_owner() == ("new", "epd-new")
    assert has_later_field(live.crd())


def test_a_later_schema_of_others_is_left(live: Live, later: Path) -> None:
    live.install("old", "epd-old", chart=later)
    before = live.crd()
    said = live.install("new", "epd-new", {"watchNamespaces": ["epd-new"]}).stdout
    assert "was left as it is" in said
    assert live.crd() == before


def test_a_prerelease_is_older_than_its_release(live: Live, tmp_path: Path) -> None:
    prerelease = chart_with_version(tmp_path / "rc", "99.0.0-rc.1", extra_field=True)
    live.install("old", "epd-old", chart=prerelease)
    live.uninstall("old", "epd-old")
    release = chart_with_version(tmp_path / "release", "99.0.0")
    assert "invalid ownership metadata" in live.install("new", "epd-new", chart=release, check=False).stderr


def test_a_crd_applied_by_hand_is_left(live: Live) -> None:
    live.kubectl("apply", "--server-side", "-f", paths.REPO / "crds" / FILE)
    said = live.install("epd-operator", "epd-system").stdout
    assert "was left as it is: it belongs to\nno Helm release." in said
    hand_over(live, said)
    live.upgrade("epd-operator", "epd-system")
    assert live.crd_owner() == ("epd-operator", "epd-system")
    assert "CustomResourceDefinition" in live.manifest("epd-operator", "epd-system")


def test_switching_crds_off_leaves_what_is_there(live: Live) -> None:
    live.install("epd-operator", "epd-system")
    live.upgrade("epd-operator", "epd-system", {"crds": {"enabled": False}})
    assert live.has_crd()


def test_two_namespaced_releases_of_one_name(live: Live) -> None:
    for namespace in ("team-a", "team-b"):
        live.namespace(namespace)
        live.install("epd-operator", namespace, {"watchNamespaces": [namespace]})
    assert live.crd_owner() == ("epd-operator", "team-a")
    live.uninstall("epd-operator", "team-a")
    live.upgrade("epd-operator", "team-b", {"watchNamespaces": ["team-b"], "logLevel": "debug"})
    assert live.has_crd()


def test_a_rollback_goes_through(live: Live) -> None:
    live.install("epd-operator", "epd-system")
    live.namespace("team-a")
    live.namespace("team-b")
    everything = {key: value for key, value in EVERYTHING.items() if key not in {"metrics", "nameOverride"}}
    live.upgrade("epd-operator", "epd-system", everything)
    live.helm.call("rollback", "epd-operator", "1", "--namespace", "epd-system")
    (container,) = live.get("deploy", "epd-operator", "-n", "epd-system")["spec"]["template"]["spec"]["containers"]
    assert "--log-level=info" in container["args"]
    assert live.kubectl("get", "roles,rolebindings", "-n", "team-a", "-l", RELEASE, "-o", "name") == ""


def test_the_example_of_the_notes_is_accepted(live: Live) -> None:
    said = live.install("epd-operator", "epd-system").stdout
    block = re.search(r"^ +apiVersion: epd.dev.*?(?=\n\n)", said, re.DOTALL | re.MULTILINE)
    assert block
    live.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=block[0])
