"""Makes the images without a registry, as archives in the cache, and loads them into the native node.

The operator's image is what the Dockerfile says; pause, Python base and engine are plain layers.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path

from . import archive, builds, engine, paths
from .steps import cached, locked, run, step

PAUSE = "localhost/epd-pause:1"
BASE = "localhost/python:3.11"
BUILD = "localhost/python-build:3.11"
OPERATOR = "localhost/epd-operator:dev"
ENGINE = f"localhost/vllm-cpu:{engine.VERSION}"
ENGINE_MOUNT = "/opt/vllm"
"""Where the node mounts vLLM's packages in every container."""

PATH = "/usr/local/bin:/usr/bin:/bin"
DEBIAN = ("ca-certificates", "libnuma1", "python3-venv")
"""libnuma1: vllm/_C.so; python3-venv: the Dockerfile."""
COMPILER = ("gcc", "libc6-dev", "python3-dev")
"""What the Dockerfile's BUILD has beyond its BASE."""
UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/cache/apt", "var/lib/apt/lists")

LAUNCHER = b"""#!/opt/engine/bin/python
import sys

from vllm.entrypoints.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
"""


def pause() -> Path:
    """Archive of the pause image."""

    def make(to: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            layer = archive.layer({"pause": (builds.pause().read_bytes(), 0o755)}, Path(folder, "layer.tar"))
            archive.write(to, tag=PAUSE, layers=[layer], config={"Entrypoint": ["/pause"], "User": "65535:65535"})

    builds.pause()
    return cached(_archive("pause", [paths.HARNESS / "kube" / "pause"]), "image of pause", make)


def base(tag: str = BASE, *more: str) -> Path:
    """Archive of the Python base image, with `more` packages of Debian."""

    def make(to: Path) -> None:
        archive.write(to, tag=tag, layers=[_debian(*more)], config={"Cmd": ["python3"], "Env": [f"PATH={PATH}"]})

    _debian(*more)
    return cached(_archive("python", [], *more), f"image {tag}", make)


def engine_image() -> Path:
    """Archive of the engine image: Python and a launcher; vLLM itself is the node's mount at `ENGINE_MOUNT`."""

    def make(to: Path) -> None:
        python = f"opt/engine/lib/python{engine.PYTHON}/site-packages"
        files: dict[str, tuple[bytes | str, int]] = {
            "opt/engine/pyvenv.cfg": (b"home = /usr/bin\ninclude-system-site-packages = false\n", 0o644),
            "opt/engine/bin/python": ("/usr/bin/python3", 0o777),
            "opt/engine/bin/python3": ("python", 0o777),
            "opt/engine/bin/vllm": (LAUNCHER, 0o755),
            python: (ENGINE_MOUNT, 0o777),
        }
        config = {"Entrypoint": ["vllm", "serve"], "Env": [f"PATH=/opt/engine/bin:{PATH}"]}
        with tempfile.TemporaryDirectory() as folder:
            layer = archive.layer(files, Path(folder, "layer.tar"))
            archive.write(to, tag=ENGINE, layers=[_debian(), layer], config=config)

    _debian()
    return cached(_archive("vllm-cpu", [], LAUNCHER.decode(), ENGINE_MOUNT), f"image {ENGINE}", make)


def operator() -> Path:
    """Archive of the operator's image, built by buildah from the Dockerfile."""
    sources = [paths.REPO / name for name in ("Dockerfile", "pyproject.toml", "README.md", "LICENSE", "operator")]
    sources += [paths.REPO / "requirements" / name for name in ("build.txt", "runtime.txt")]
    path = _archive("epd-operator", sources)
    below = [base(), base(BUILD, *COMPILER)]
    new = not path.exists()
    cached(path, f"image {OPERATOR} from the Dockerfile", lambda to: _bud(below, to), may_take="3 min cold, 2 min warm")
    if new:  # 300 MB for each state of the code: keep the last three
        ages = sorted(path.parent.glob("epd-operator-*.tar"), key=lambda old: old.stat().st_mtime)
        for old in ages[:-3]:
            old.unlink(missing_ok=True)
    return path


def build() -> list[Path]:
    """Archives of all images that a test needs, in the order of loading."""
    builds.packages()
    return [pause(), engine_image(), operator()]  # the operator's last: see `load`


def load() -> None:
    """Loads all images into the native node and puts vLLM's packages where its pods mount them."""
    archives = build()
    packages = engine.site_packages()
    link = paths.node() / "engine"
    if not (link.is_symlink() and link.readlink() == packages):
        link.unlink() if link.is_symlink() else link.rmdir()
        link.symlink_to(packages)
    *others, ours = archives
    for path in others:
        load_archive(path)
    if load_archive(ours):
        _restart()


def load_archive(path: Path) -> bool:
    """Imports one archive into the native node's containerd, once; whether it was new."""
    record = paths.node() / "loaded"
    with locked(record):
        loaded = record.read_text().split() if record.exists() else []
        if path.name in loaded:
            return False
        with step(f"load {path.name}", may_take="10 s"):
            run(["ctr", "--address", f"{paths.RUN}/containerd.sock", "--namespace", "k8s.io", "images", "import", path])
        kind = path.name.rpartition("-")[0]
        rest = [name for name in loaded if name.rpartition("-")[0] != kind]
        record.write_text("\n".join([*rest, path.name]))  # an image moves on: of each kind only the last is there
        return True


def _restart() -> None:
    """Deletes the pods that run an earlier state of the operator's image: the tag stays, so nothing else would."""
    kubectl = [paths.tool("kubectl"), "--kubeconfig", paths.node() / "kubeconfig"]
    for pod in json.loads(run([*kubectl, "get", "pods", "--all-namespaces", "-o", "json"]))["items"]:
        if any(container["image"] == OPERATOR for container in pod["spec"]["containers"]):
            where = pod["metadata"]
            run([*kubectl, "delete", "pod", where["name"], "-n", where["namespace"], "--wait=false"])


def _archive(name: str, sources: list[Path], *more: str) -> Path:
    return paths.cache() / f"{name}-{paths.key([*sources, paths.HARNESS / 'archive.py'], *DEBIAN, *more)}.tar"


def _debian(*more: str) -> Path:
    """Layer of Debian bookworm with Python and `more`."""

    def make(to: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder, "root")
            include = f"--include={','.join([*DEBIAN, *more])}"
            command: list[str | Path] = ["debootstrap", "--variant=minbase", include, "bookworm", root]
            run([*command, *_mirror()])
            exclude = [f"--exclude=./{name}/*" for name in UNUSED]
            run(["tar", "--numeric-owner", "--sort=name", *exclude, "-C", root, "-cf", to, "."])

    path = paths.cache() / f"debian-{paths.key([], *DEBIAN, *more, *UNUSED)}.tar"
    return cached(path, " ".join(["Debian bookworm with Python", *more]), make, may_take="60 s")


def _mirror() -> list[str]:
    """The Debian mirror that this machine's apt uses; none: debootstrap's own default."""
    printed = run(["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(CREATED_BY)"])
    sites = [line.split()[0] for line in printed.splitlines() if " bookworm Packages" in line]
    return [site for site in sites if "debian" in site and "security" not in site][:1]


def _bud(below: list[Path], to: Path) -> None:
    store = paths.cache() / "buildah"
    buildah = ["buildah", "--root", store, "--runroot", paths.cache() / "buildah-run", "--storage-driver", "overlay"]
    try:
        for image in below:
            run([*buildah, "pull", "--quiet", f"docker-archive:{image}"])
        with tempfile.TemporaryDirectory() as folder:
            command = [*buildah, "bud", "--isolation", "chroot", "--layers", "--pull-never"]
            command += ["--build-arg", f"BASE={BASE}", "--build-arg", f"BUILD={BUILD}", *_secrets(Path(folder))]
            command += ["--tag", OPERATOR, paths.REPO]
            run(command)
        run([*buildah, "push", "--quiet", OPERATOR, f"docker-archive:{to}:{OPERATOR}"])
    finally:
        run([*buildah, "rm", "--all"])  # a failed build leaves a mounted container
        subprocess.run(["umount", store / "overlay"], capture_output=True, check=False)  # buildah's own, kept for speed


def _secrets(folder: Path) -> list[str]:
    """How pip reaches an index on this machine, as build secrets: pip's settings and the certificate authorities."""
    settings: dict[str, str] = {}
    for line in run(["pip", "config", "list"]).splitlines() if shutil.which("pip") else []:
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = value.strip("'")
    if index := os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL"):
        settings.setdefault("index-url", index)
    authorities = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    found = []
    if authorities and Path(authorities).exists():
        settings["cert"] = "/run/secrets/ca.crt"
        found += ["--secret", f"id=ca,src={authorities}"]
    settings.pop("find-links", None)  # folders of this machine
    lines = ["[global]", *(f"{name} = {value}" for name, value in settings.items())]
    (folder / "pip.conf").write_text("\n".join(lines) + "\n")
    return [*found, "--secret", f"id=pip,src={folder / 'pip.conf'}"]
