"""Pods as the API server has them."""

from __future__ import annotations

from typing import Any


def pod(name: str = "a", **changes: Any) -> dict[str, Any]:
    """A pod in rotation; `changes` replace labels, status, containers or metadata fields."""
    labels = {"llm-d.ai/role": "encode", "epd.dev/pairing": "p1", "epd.dev/model-version": "v1-x"}
    metadata = {"name": name, "labels": labels | changes.get("labels", {})} | changes.get("metadata", {})
    ports = [{"name": "metrics", "containerPort": 1}, {"name": "http", "containerPort": 8000}]
    containers = [
        {"name": "sidecar", "ports": [{"name": "http", "containerPort": 2}]},
        {"name": "engine", "ports": ports},
    ]
    status = {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "metadata": metadata,
        "spec": {"containers": changes.get("containers", containers)},
        "status": status | changes.get("status", {}),
    }
