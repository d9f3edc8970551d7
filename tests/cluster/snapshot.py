"""What a node leaves on its machine: taken before `up`, compared after `down`.

It reads only; `native` removes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from . import paths, processes
from .steps import run

SYSCTLS = (
    "net.ipv4.ip_forward",
    "net.ipv4.conf.all.route_localnet",
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    "kernel.panic",
    "kernel.panic_on_oops",
    "kernel.keys.root_maxkeys",
    "kernel.keys.root_maxbytes",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
)
"""What we, kubelet (container_manager_linux.go, setupKernelTunables) and kube-proxy (conntrack.go) set."""

FOLDERS = (
    "/run/containerd",
    "/run/epd-cluster",
    "/run/netns",
    "/run/runc",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
    "/opt/containerd",
    "/etc/cni",
)
"""Places outside our state folder that containerd, CNI plugins and kubelet write to."""

Snapshot = Mapping[str, list[str]]


def take() -> dict[str, list[str]]:
    """Mounts, processes of a node, links, firewall rules, network namespaces, cgroups, kernel settings, folders."""
    return {
        "mounts": mounts(),
        "processes": sorted(f"{pid} {processes.started(pid)} {words}" for pid, words in ours().items()),
        "links": sorted(link.name for link in Path("/sys/class/net").iterdir()),
        "firewall": [f"{tool}: {rule}" for tool in ("iptables", "ip6tables") for rule in firewall(tool)],
        "network namespaces": sorted(map(str, Path("/run/netns").glob("*"))),
        "cgroups": sorted(map(str, cgroups())),
        "kernel settings": settings(),
        "folders": [folder for folder in FOLDERS if Path(folder).exists()],
    }


def mounts() -> list[str]:
    """Mount points, one for each mount."""
    return sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())


def settings() -> list[str]:
    """`name=value` of `SYSCTLS`."""
    return [f"{name}={value}" for name in SYSCTLS if (value := _sysctl(name)) is not None]


def leftovers(before: Snapshot, after: Snapshot) -> list[str]:
    """What is there now and was not before, and rules and settings that are gone or changed, each in words."""
    found = []
    for kind, now in after.items():
        found += [f"{kind}: left: {item}" for item in now if item not in before.get(kind, [])]
        if kind in ("links", "firewall"):
            found += [f"{kind}: lost: {item}" for item in before.get(kind, []) if item not in now]
    return found


def ours() -> dict[int, str]:
    """Pids and command lines of the node's processes: its components, containerd's shims, and what runs in its pods.

    Never others that merely name its files, as a `tail -f` of a log or a test's kubectl does.
    """
    in_pods = {int(pid) for root in cgroups() for file in root.rglob("cgroup.procs") for pid in _lines(file)}
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if (pid in in_pods or _component(words)) and processes.started(pid):
            found[pid] = " ".join(words)[:200].strip()
    return found


def _component(words: list[str]) -> bool:
    program = Path(words[0]).name
    known = program in ("containerd", "containerd-shim-runc-v2", "runc") or program.startswith("kube-")
    text = " ".join(words[1:])
    ours = f"{paths.node()}/" in text or f"{paths.RUN}/" in text
    return ours and (known or "cluster.provisioner" in words)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:  # the group went away, or is of a kind that can't list processes
        return []


def firewall(tool: str) -> list[str]:
    """Rules and chains (`-N`) of all tables, without counters and the kernel's own chains."""
    if shutil.which(f"{tool}-save") is None:
        return []
    found, table = [], ""
    for line in run([f"{tool}-save"]).splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":") and " - [" in line:
            found.append(f"-t {table} -N {line[1:].split()[0]}")
        elif line.startswith("-A"):
            found.append(f"-t {table} {line}")
    return found


def cgroups() -> list[Path]:
    """The control groups that kubelet makes, of either cgroup version."""
    root = Path("/sys/fs/cgroup")
    return [path for pattern in ("kubepods*", "*/kubepods*") for path in root.glob(pattern)]


def foreign_rule(rule: str) -> bool:
    """Whether a rule as `firewall` gives it belongs to somebody else than kube-proxy, kubelet or CNI plugins."""
    return re.search(r" (-N|-A|-j|-g) (KUBE-|CNI-)", rule) is None


def _sysctl(name: str) -> str | None:
    path = Path("/proc/sys") / name.replace(".", "/")
    return path.read_text().strip() if path.exists() else None
