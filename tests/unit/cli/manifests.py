"""Manifests as users have them in files."""

from __future__ import annotations

from pathlib import Path

GOOD = """
apiVersion: epd.dev/v1alpha1
kind: EPDDeployment
metadata: {name: a}
spec:
  model: {name: m}
  engine: {image: "vllm:v0.33.0"}
  prefillDecode: {}
"""
OTHER = GOOD.replace("name: a", "name: b, namespace: ns")


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "epd.yaml"
    path.write_text(text)
    return str(path)
