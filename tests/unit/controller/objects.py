"""Pods, claims and Events as the API server shows them, cut down to what is read."""

from __future__ import annotations

from typing import Any


def pod(name: str = "qwen-encode-1", **status: Any) -> dict[str, Any]:
    """A pod with a status."""
    metadata = {"name": name, "namespace": "ai", "uid": f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": status}


def waiting(reason: str, message: str = "", *, image: str = "engine:1") -> dict[str, Any]:
    """A pod whose container waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(containerStatuses=[{"name": "engine", "image": image, "state": state}])


def ended(message: str = "", *, reason: str = "Error", code: int = 1, now: str = "running") -> dict[str, Any]:
    """A pod whose container ended and is being started again."""
    last = {"terminated": {"reason": reason, "exitCode": code, "message": message}}
    status = {"name": "engine", "image": "engine:1", "ready": False, "state": {now: {}}, "lastState": last}
    return pod(containerStatuses=[status])


def unschedulable(message: str) -> dict[str, Any]:
    """A pod without a node."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod(conditions=[condition])


def ready(name: str = "qwen-encode-1") -> dict[str, Any]:
    """A pod that serves."""
    return pod(name, conditions=[{"type": "Ready", "status": "True"}])


def event(reason: str, message: str, *, type_: str = "Warning", uid: str = "", at: str = "1") -> dict[str, Any]:
    """An Event."""
    return {
        "reason": reason, "message": message, "type": type_, "involvedObject": {"uid": uid}, "lastTimestamp": at
    }  # fmt: skip
