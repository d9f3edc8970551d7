"""helm and kubectl on a real API server without nodes: objects are kept and checked, and no pod ever runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chart.helm import Helm, Manifest, Result, Values, with_image
from cluster import paths
from cluster.steps import run

CRD = "epddeployments.epd.dev"


@dataclass(frozen=True, kw_only=True)
class Live:
    """One API server, and the chart as `helm` has it."""

    helm: Helm
    kubeconfig: Path

    def kubectl(self, *words: str | Path, stdin: str | None = None) -> str:
        """Runs kubectl. HarnessError: it failed."""
        return run([paths.tool("kubectl"), "--kubeconfig", self.kubeconfig, *words], stdin=stdin)

    def get(self, *words: str) -> Manifest:
        """`kubectl get WORDS -o json`, parsed."""
        return dict(json.loads(self.kubectl("get", *words, "-o", "json")))

    def crd(self) -> Manifest:
        """The CustomResourceDefinition that is in the cluster."""
        return self.get("crd", CRD)

    def crd_owner(self) -> tuple[str, str]:
        """Name and namespace of the release that the CustomResourceDefinition names."""
        annotations = self.crd()["metadata"]["annotations"]
        return annotations["meta.helm.sh/release-name"], annotations["meta.helm.sh/release-namespace"]

    def has_crd(self) -> bool:
        """Whether there is a CustomResourceDefinition of ours."""
        return bool(self.kubectl("get", "crd", CRD, "--ignore-not-found", "-o", "name"))

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Makes a namespace unless it is there."""
        metadata = {"name": name, "labels": dict(labels or {})}
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))

    def install(
        self,
        release: str,
        namespace: str,
        values: Values | None = None,
        *flags: str,
        chart: Path | None = None,
        check: bool = True,
    ) -> Result:
        """`helm install`, without waiting for pods that cannot run here."""
        words = (release, str(chart or self.helm.chart), "--namespace", namespace, "--create-namespace", *flags)
        return self.helm.call("install", *words, values=with_image(values), check=check)

    def upgrade(
        self,
        release: str,
        namespace: str,
        values: Values | None = None,
        *flags: str,
        chart: Path | None = None,
        check: bool = True,
    ) -> Result:
        """`helm upgrade` with exactly these values."""
        words = (release, str(chart or self.helm.chart), "--namespace", namespace, *flags)
        return self.helm.call("upgrade", *words, values=with_image(values), check=check)

    def uninstall(self, release: str, namespace: str) -> str:
        """`helm uninstall`; what it says."""
        # Not waiting for dependents: without a garbage collector nothing removes them.
        words = ("uninstall", release, "--namespace", namespace, "--cascade", "background")
        return self.helm.call(*words).stdout

    def releases(self) -> list[tuple[str, str]]:
        """(name, namespace) of every release, also of failed ones."""
        listed = self.helm.call("list", "--all-namespaces", "--output", "json").stdout
        return [(item["name"], item["namespace"]) for item in json.loads(listed)]

    def manifest(self, release: str, namespace: str) -> str:
        """What the release holds."""
        return self.helm.call("get", "manifest", release, "--namespace", namespace).stdout

    def can(self, user: str, verb: str, resource: str, namespace: str) -> bool:
        """Whether a user may do this to `resource` ("group/resource" or "group/resource/subresource")."""
        group, plural, *subresource = resource.split("/")
        attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": plural}
        attributes |= {"subresource": subresource[0]} if subresource else {}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        }
        said = self.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(review))
        return bool(json.loads(said)["status"]["allowed"])

    def clear(self) -> None:
        """Removes every release and the CustomResourceDefinition."""
        for release, namespace in self.releases():
            self.uninstall(release, namespace)
        self.kubectl("delete", "crd", CRD, "--ignore-not-found", "--wait")


def epd(name: str, **spec: Any) -> Manifest:
    """The smallest EPDDeployment that the schema accepts, aggregated."""
    whole = {"model": {"name": "m"}, "engine": {"image": "vllm/vllm-openai:v0.33.0"}, "prefillDecode": {}} | spec
    return {"apiVersion": "epd.dev/v1alpha1", "kind": "EPDDeployment", "metadata": {"name": name}, "spec": whole}
