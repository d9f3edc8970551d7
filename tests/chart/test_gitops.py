"""The files of examples/gitops: Kustomize builds them, and Argo CD's health check says what the conditions say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import paths
from epd.api import names
from epd.api.types import EPDDeployment

GITOPS = paths.REPO / "examples" / "gitops"
CRD = paths.REPO / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml"
OVERLAY = GITOPS / "kustomize" / "overlays" / "prod"
HEALTH = GITOPS / "argocd" / "health.lua"


def built(folder: Path) -> dict[str, dict[str, Any]]:
    done = subprocess.run([paths.tool("kubectl"), "kustomize", folder], capture_output=True, text=True, check=True)
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(done.stdout)}


@pytest.fixture(scope="module")
def prod() -> dict[str, dict[str, Any]]:
    return built(OVERLAY)


def test_kustomize_follows_names_into_the_spec(prod: dict[str, dict[str, Any]]) -> None:
    spec = prod[names.KIND]["spec"]
    hub = spec["model"]["source"]["huggingFace"]
    assert hub["tokenSecretRef"]["name"] == prod["Secret"]["metadata"]["name"]
    assert re.fullmatch(r"prod-hub-[a-z0-9]{10}", hub["tokenSecretRef"]["name"])
    assert hub["cacheClaim"]["claimName"] == prod["PersistentVolumeClaim"]["metadata"]["name"] == "prod-hub-cache"
    reference = spec["engine"]["env"][0]["valueFrom"]["configMapKeyRef"]
    assert reference["name"] == prod["ConfigMap"]["metadata"]["name"]


def test_kustomize_sets_the_image_and_merges_the_patches(prod: dict[str, dict[str, Any]]) -> None:
    spec = prod[names.KIND]["spec"]
    assert spec["engine"]["image"] == "registry.example.com/mirror/vllm-openai:v0.33.0"
    assert (spec["encode"]["replicas"], spec["prefillDecode"]["replicas"]) == (2, 4)
    assert [variable["name"] for variable in spec["engine"]["env"]] == ["VLLM_LOGGING_LEVEL", "NCCL_DEBUG"]
    EPDDeployment.model_validate(prod[names.KIND])


def test_kustomize_is_told_of_fields_that_exist() -> None:
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    told = yaml.safe_load((OVERLAY / "epddeployment.yaml").read_text())
    fields = [*told["images"], *(field for kind in told["nameReference"] for field in kind["fieldSpecs"])]
    assert len(fields) == 12
    for field in fields:
        at, rest = schema, field["path"].split("/")
        while rest and not at.get("x-kubernetes-preserve-unknown-fields"):
            at = at.get("items", at)["properties"][rest.pop(0)]


def condition(type_: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    return {"type": type_, "status": status, "reason": reason, "message": message}


READY = condition("Ready", "True", "AllReady", "2E 4/4PD")
STARTING = condition("Ready", "False", "Starting", "encode loads its model")
PENDING = condition("Ready", "Unknown", "Pending")
STALLED = condition("Stalled", "True", "OwnedField", "engine.args sets --port")
NOT_STALLED = condition("Stalled", "False", "AsSpecified")


@pytest.mark.parametrize(
    ("status", "health", "message"),
    [
        (None, "Progressing", "Waiting for the operator"),
        ({"conditions": [PENDING]}, "Progressing", "Waiting for the operator"),
        ({"observedGeneration": 1, "conditions": [READY]}, "Progressing", "Waiting for the operator"),
        ({"observedGeneration": 2}, "Progressing", "Waiting for the operator"),
        ({"observedGeneration": 2, "conditions": []}, "Progressing", "Waiting for the operator"),
        ({"observedGeneration": 2, "conditions": [PENDING]}, "Progressing", "Pending"),
        ({"observedGeneration": 2, "conditions": [STARTING]}, "Progressing", "Starting: encode loads its model"),
        ({"observedGeneration": 2, "conditions": [NOT_STALLED, READY]}, "Healthy", "AllReady: 2E 4/4PD"),
        (
            {"observedGeneration": 2, "conditions": [condition("Ready", "True", "Suspended")]},
            "Healthy",
            "Suspended",
        ),
        (
            {"observedGeneration": 2, "conditions": [STARTING, STALLED]},
            "Degraded",
            "OwnedField: engine.args sets --port",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_argo_cd_health(status: dict[str, Any] | None, health: str, message: str) -> None:
    lua51 = pytest.importorskip("lupa.lua51", reason="lupa, a Lua 5.1 as Argo CD has it, is not installed")
    runtime = lua51.LuaRuntime()
    check = runtime.eval(f"function(obj) {HEALTH.read_text()} end")
    obj = {"metadata": {"generation": 2}} | ({"status": status} if status is not None else {})
    said = check(runtime.table_from(obj, recursive=True))
    assert (said["status"], said["message"]) == (health, message)


def test_argo_cds_settings_hold_the_health_check() -> None:
    settings = yaml.safe_load((GITOPS / "argocd" / "argocd-cm.yaml").read_text())
    assert settings["data"] == {f"resource.customizations.health.{names.GROUP}_{names.KIND}": HEALTH.read_text()}


@pytest.mark.parametrize("file", sorted(GITOPS.glob("*/*.yaml")), ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_file_is_yaml_without_secrets_of_anyone(file: Path) -> None:
    assert [document for document in yaml.safe_load_all(file.read_text()) if document]
    assert not re.search(r"hf_[A-Za-z0-9]{20,}", file.read_text())
