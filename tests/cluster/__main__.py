"""The command line of the harness: python -m cluster VERB, with tests/ on PYTHONPATH."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from cluster import builds, compiled, controlplane, demo, engine, images, providers, snapshot
from cluster.steps import HarnessError, say

VERBS = {
    "build": "build the Kubernetes binary and helm (cached)",
    "engine": "install vLLM for CPU (cached); with --lock write its lock file anew",
    "browser": "install Chromium without a screen",
    "compiled": "build the package with its hot modules compiled (cached)",
    "images": "build the images (cached), and load them if the cluster runs",
    "up": "bring the cluster up",
    "load": "load the images into the running cluster",
    "ensure": "up, images and load",
    "down": "take the cluster away; exit status 1 names what it left",
    "status": "say what runs",
    "kubeconfig": "print the kubeconfig's path",
    "control-plane": "up or down: etcd and kube-apiserver alone",
    "demo": "cluster, operator, example, one question about a picture",
    "demo-down": "take the demo and its cluster away",
}


def main() -> int:
    """Runs one verb; 1 and a message when it fails."""
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, says in VERBS.items():
        verb = verbs.add_parser(name, help=says, description=says)
        if name == "engine":
            verb.add_argument("--lock", action="store_true")
        if name == "control-plane":
            verb.add_argument("what", choices=("up", "down"))
            verb.add_argument("--controllers", action="store_true", help="also kube-controller-manager")
    arguments = parser.parse_args()
    try:
        return _actions()[arguments.verb](arguments)
    except (HarnessError, FileNotFoundError) as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; the same command goes on from here")
        return 130


def _actions() -> dict[str, Callable[[argparse.Namespace], int]]:
    return {
        "build": lambda _: _build(),
        "engine": lambda arguments: engine.lock() or 0 if arguments.lock else _print(engine.environment()),
        "browser": lambda _: builds.browser() or 0,
        "compiled": lambda _: _print(compiled.package()),
        "images": lambda _: _images(),
        "up": lambda _: _print(providers.up(providers.choose()).kubeconfig),
        "load": lambda _: providers.load(providers.choose()) or 0,
        "ensure": lambda _: _print(providers.ensure().kubeconfig),
        "down": lambda _: _down(),
        "status": lambda _: _status(),
        "kubeconfig": lambda _: _print(providers.connect(providers.choose()).kubeconfig),
        "control-plane": _control_plane,
        "demo": lambda _: demo.run_demo() or 0,
        "demo-down": lambda _: _down(),
    }


def _print(value: object) -> int:
    say(str(value))
    return 0


def _build() -> int:
    builds.packages()
    for path in (builds.kube(), builds.pause(), builds.helm()):
        say(str(path))
    return 0


def _images() -> int:
    provider = providers.choose()
    if providers.running(provider):
        providers.load(provider)
    elif provider == "native":
        for path in images.build():
            say(str(path))
    return 0


def _down() -> int:
    left = providers.down(providers.choose())
    for item in left:
        say(f"error: left behind: {item}")
    if not left:
        say("nothing left behind")
    return 1 if left else 0


def _status() -> int:
    provider = providers.choose()
    up = providers.running(provider)
    say(f"{provider}: {'up' if up else 'down'}")
    for pid, words in sorted(snapshot.ours().items()) if provider == "native" else ():
        say(f"    {pid} {words[:120]}")
    return 0 if up else 1


def _control_plane(arguments: argparse.Namespace) -> int:
    if arguments.what == "down":
        controlplane.down()
        return 0
    return _print(controlplane.up(controllers=arguments.controllers))


if __name__ == "__main__":
    sys.exit(main())
