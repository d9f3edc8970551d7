"""Gets what is measured beside the proxy: the Go binary built, peers from package registries by their ordinary clients.

Everything lands in a cache folder; nothing of a peer is part of this project. Never starts a peer.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
CACHE: Final = ROOT / ".cache" / "bench-proxy"

VLLM: Final = "vllm==0.33.0"
VLLM_SDIST: Final = "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112"
UPSTREAM: Final = "examples/disaggregated/disaggregated_encoder/disagg_epd_proxy.py"
UPSTREAM_SHA256: Final = "dff7b4dd37b0ef1c26330fb79b15749d871ef37ca66cc8448e678aa143068ca2"
GO: Final = ("go", "/usr/local/go/bin/go")
"""The second is where Go's own archive installs to, often not on PATH."""


class AbsentError(Exception):
    """A peer cannot be had; the text says why."""


def interpreter() -> str:
    """Return the interpreter that all stacks in Python run by.

    The distribution's if it has this minor version, as in the image: like Docker's official ones it was optimized by a
    profile, which spares a fifth of the CPU time and which interpreters that one builds for development mostly are not.
    """
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    return system if Path(system).exists() else sys.executable


def libraries() -> str:
    """Return the folder of the packages that the proxy needs."""
    return sysconfig.get_path("purelib")


def go() -> str | None:
    """Return the path of Go's command, if it is installed."""
    return next((path for name in GO if (path := shutil.which(name))), None)


def binary() -> Path:
    """Build mock engine, loader and relay. Raises SystemExit where that fails."""
    if (command := go()) is None:
        raise SystemExit("Go is not installed; the mock engine, the loader and the relay are built with it")
    path = CACHE / "proxybench"
    try:
        _run([command, "build", "-o", str(path), "."], cwd=HERE)
    except AbsentError as error:
        raise SystemExit(str(error)) from None
    return path


def upstream() -> list[str]:
    """Return the command of vLLM's proxy, without flags. Raises AbsentError."""
    python = _environment("upstream")
    script = CACHE / "upstream" / "disagg_epd_proxy.py"
    if not script.exists():
        shutil.copyfile(_from_sdist(CACHE / "upstream"), script)
    if hashlib.sha256(script.read_bytes()).hexdigest() != UPSTREAM_SHA256:
        raise AbsentError(f"{script.name} is not the one that was measured before (sha256 differs)")
    return [str(python), str(script)]


def router() -> list[str]:
    """Return the command of vllm-router, without flags. Raises AbsentError."""
    python = _environment("router")
    return [str(python), str(python.parent / "vllm-router")]


def _environment(name: str) -> Path:
    """Make an environment of NAME.txt; return its interpreter."""
    requirements, directory = HERE / f"{name}.txt", CACHE / name
    python, stamp = directory / "venv" / "bin" / "python", directory / "requirements.txt"
    wanted = f"# {interpreter()}\n{requirements.read_text()}"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    directory.mkdir(parents=True, exist_ok=True)
    print(f"installing {requirements.name} into {directory.relative_to(ROOT)}", flush=True)
    _uv("venv", "--quiet", "--clear", "--python", interpreter(), str(directory / "venv"))
    _uv("pip", "install", "--quiet", "--no-deps", "--python", str(python), "--requirement", str(requirements))
    stamp.write_text(wanted)
    return python


def _from_sdist(directory: Path) -> Path:
    """Let uv fetch, check and unpack vLLM's sdist; return where the script lies in its cache.

    The build that would follow cannot begin: it may not fetch its backend, and the environment has none.
    """
    bare, cache, wanted = directory / "bare", directory / "uv-cache", directory / "sdist.txt"
    print(f"fetching the sdist of {VLLM} (30 MB) for its {Path(UPSTREAM).name}", flush=True)
    _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(bare))
    wanted.write_text(f"{VLLM} --hash=sha256:{VLLM_SDIST}\n")
    flags = ["--no-deps", "--no-binary", "vllm", "--no-build-isolation", "--require-hashes"]
    command = ["pip", "install", *flags, "--cache-dir", str(cache), "--python", str(bare / "bin" / "python")]
    try:
        _uv(*command, "--requirement", str(wanted))
    except AbsentError as error:
        found = next(cache.glob(f"sdists-*/**/src/{UPSTREAM}"), None)
        if found is None:
            raise AbsentError(f"the sdist of {VLLM} cannot be had: {error}") from None
        return found
    raise AbsentError(f"{VLLM} was built, which nobody asked for")


def _uv(*arguments: str) -> None:
    uv = shutil.which("uv")
    if uv is None:
        raise AbsentError("uv is not installed")
    _run([uv, *arguments], cwd=CACHE)


def _run(command: list[str], *, cwd: Path) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600)
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise AbsentError(f"{Path(command[0]).name} {command[1]}: {' '.join(said)[:300]}")
