"""Writes a container image as a docker-archive tar from layer tars, with nothing but the standard library.

It never runs a command in an image: what needs that is a Dockerfile's work.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def layer(files: Mapping[str, tuple[bytes | str, int]], path: Path) -> Path:
    """Writes a layer of `files`, owned by root, to `path`: name in the image -> content and mode; text is a link."""
    with tarfile.open(path, "w") as tar:
        for name, (content, mode) in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.mode = mode
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return path


def write(path: Path, *, tag: str, layers: Sequence[Path], config: Mapping[str, Any]) -> None:
    """Writes the image `tag` to `path`, the layers in order from the bottom.

    `config` has the keys of an OCI image configuration's `config`: Entrypoint, Cmd, Env, User, WorkingDir.
    """
    digests = [_sha256(each) for each in layers]
    image = {
        "architecture": "amd64",
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created_by": "tests/cluster"} for _ in digests],
    }
    content = json.dumps(image, sort_keys=True).encode()
    name = f"{hashlib.sha256(content).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [tag], "Layers": [f"{digest}.tar" for digest in digests]}]
    with tarfile.open(path, "w") as tar:
        for digest, each in zip(digests, layers, strict=True):
            tar.add(each, arcname=f"{digest}.tar", recursive=False)
        for entry, data in ((name, content), ("manifest.json", json.dumps(manifest).encode())):
            member = tarfile.TarInfo(entry)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
