"""Takes away what the native node put on the machine outside its own processes.

It touches only what was not there before `up` and carries the node's own names.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
from pathlib import Path

from . import paths, processes, snapshot
from .snapshot import FOLDERS, Snapshot
from .steps import HarnessError, run

_libc = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2
"""umount2(2): out of sight now, freed when the last user is gone."""


def remove(before: Snapshot, *, state: Path, bridge: str) -> None:
    """Ends leftover shims, then removes mounts, network, rules, control groups, kernel settings and files."""
    for pid in sorted(snapshot.ours()):
        if pid != os.getpid():
            processes.end(pid)
    _mounts(before, state)
    if Path(f"/sys/class/net/{bridge}").exists():
        run(["ip", "link", "del", bridge])
    for tool in ("iptables", "ip6tables"):
        _rules(tool, before)
    _cgroups(before)
    now = snapshot.settings()
    for setting in before.get("kernel settings", []):
        if setting not in now:
            run(["sysctl", "-qw", setting])
    for folder in FOLDERS:
        if Path(folder).exists() and folder not in before.get("folders", [folder]):
            shutil.rmtree(folder)
    shutil.rmtree(state)
    shutil.rmtree(paths.RUN, ignore_errors=True)


def _mounts(before: Snapshot, state: Path) -> None:
    """Unmounts; a mount below `state` that stays would let the removal of `state` delete through it."""
    places = (f"{state}/", f"{paths.RUN}/", "/run/containerd/", "/run/netns/", "/var/lib/kubelet/")

    def mine() -> list[str]:
        return [m for m in snapshot.mounts() if m.startswith(places) and m not in before.get("mounts", [])]

    for target in sorted(mine(), reverse=True):
        _libc.umount2(os.fsencode(target), MNT_DETACH)
    if left := mine():
        raise HarnessError(f"still mounted, so nothing is deleted: {' '.join(left)}")


def _rules(tool: str, before: Snapshot) -> None:
    """Deletes the rules and chains of kube-proxy, kubelet and CNI plugins."""
    had = before.get("firewall", [])
    new = [rule for rule in snapshot.firewall(tool) if f"{tool}: {rule}" not in had and not snapshot.foreign_rule(rule)]
    chains = [rule.split() for rule in new if " -N " in rule]
    tables = {rule.split()[1] for rule in new}
    for table in sorted(tables):
        own = {words[3] for words in chains if words[1] == table}
        prefix = f"-t {table} "
        rules = [rule.removeprefix(prefix) for rule in new if rule.startswith(prefix) and " -A " in rule]
        jumps = [rule.replace("-A", "-D", 1) for rule in rules if rule.split()[1] not in own]
        lines = [f"*{table}", *(f"-F {c}" for c in own), *jumps, *(f"-X {c}" for c in own), "COMMIT", ""]
        run([f"{tool}-restore", "--noflush"], stdin="\n".join(lines))


def _cgroups(before: Snapshot) -> None:
    for root in snapshot.cgroups():
        if str(root) not in before.get("cgroups", []):
            for folder, _, _ in sorted(os.walk(root), reverse=True):
                with contextlib.suppress(FileNotFoundError):
                    Path(folder).rmdir()
