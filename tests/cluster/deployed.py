"""One EPDDeployment on the node as the end-to-end tests see it: its pods, its status, its URL, its metrics.

Reads through kubectl alone, as people do; asserts nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import yaml

Kubectl = Callable[..., str]
"""Runs kubectl with these arguments, `stdin` as a keyword, and returns its output."""


@dataclass(frozen=True)
class Deployed:
    """An EPDDeployment by namespace and name."""

    kubectl: Kubectl
    namespace: str
    name: str

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """kubectl in this namespace."""
        return self.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def apply(self, manifest: dict[str, Any]) -> None:
        """`kubectl apply` the object."""
        self.run("apply", "-f", "-", stdin=yaml.safe_dump(manifest))

    def patch(self, spec: dict[str, Any]) -> None:
        """Merge-patch the spec."""
        self.run("patch", "epd", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def get(self) -> dict[str, Any]:
        """The object as the API server has it."""
        return dict(json.loads(self.run("get", "epd", self.name, "-o", "json")))

    def condition(self, kind: str) -> dict[str, Any]:
        """One condition, {} while it is not there."""
        conditions = self.get().get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    def wait_ready(self, *, seconds: int = 420) -> None:
        """`kubectl wait` for Ready; raises with the conditions when it does not come."""
        try:
            self.run("wait", "--for=condition=Ready", f"epd/{self.name}", f"--timeout={seconds}s")
        except Exception as error:
            raise AssertionError(f"not Ready within {seconds} s: {self.explain()}") from error

    def wait_condition(self, kind: str, reason: str, *, seconds: float = 120) -> dict[str, Any]:
        """Wait until a condition has this reason; return it."""
        deadline = time.monotonic() + seconds
        while (found := self.condition(kind)).get("reason") != reason:
            if time.monotonic() > deadline:
                raise AssertionError(f"{kind} is not {reason} within {seconds:.0f} s: {self.explain()}")
            time.sleep(1)
        return found

    def explain(self) -> str:
        """Conditions and pods, for the message of a failed test."""
        conditions = self.get().get("status", {}).get("conditions", [])
        lines = [f"{c['type']}={c['status']} {c['reason']}: {c['message']}" for c in conditions]
        return "\n".join([*lines, self.run("get", "pods,pvc,jobs", "-o", "wide")])

    def pods(self, role: str) -> list[dict[str, Any]]:
        """Pods of a role that are not being deleted."""
        selector = f"epd.dev/name={self.name},llm-d.ai/role={role}"
        items = json.loads(self.run("get", "pods", "-l", selector, "-o", "json"))["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def engine(self, role: str, index: int = 0) -> str:
        """Base URL of one engine, past the proxy."""
        pod = sorted(self.pods(role), key=lambda p: str(p["metadata"]["name"]))[index]
        return f"http://{pod['status']['podIP']}:8000"

    def url(self) -> str:
        """Base URL of the Service, by its address: the node's host has no cluster DNS."""
        spec = json.loads(self.run("get", "service", self.name, "-o", "json"))["spec"]
        (port,) = spec["ports"]
        return f"{port['appProtocol']}://{spec['clusterIP']}:{port['port']}"

    def metric(self, name: str, **labels: str) -> float:
        """A metric summed over the proxy's pods and over the series that carry `labels`."""
        selector = f"epd.dev/name={self.name},app.kubernetes.io/component=proxy"
        pods = json.loads(self.run("get", "pods", "-l", selector, "-o", "json"))["items"]
        addresses = [pod["status"]["podIP"] for pod in pods if pod["status"].get("podIP")]
        return sum(
            sample(httpx.get(f"http://{address}:9090/metrics", timeout=10).text, name, **labels)
            for address in addresses
        )


def sample(exposition: str, name: str, **labels: str) -> float:
    """The sum of the series `name` with these labels in Prometheus's text format."""
    total = 0.0
    for line in exposition.splitlines():
        match = re.match(rf"{re.escape(name)}(?:\{{(.*)\}})? (\S+)", line)
        if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
            total += float(match[2])
    return total
