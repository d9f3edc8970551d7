"""`kubectl epd`: parses the command line and prints. Decides nothing; changes nothing in a cluster."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from epd import __version__
from epd.api.types import EPDDeployment
from epd.cli import status
from epd.cli.cluster import ClusterError, get
from epd.cli.documents import DocumentError, read
from epd.manifests import Context, Manifest, collector, desired
from epd.manifests.labels import collector_name
from epd.manifests.service import url
from epd.topology.engine_version import engine_version
from epd.topology.model_version import harmless_names, model_version, version_inputs
from epd.topology.pairing import pairing, pairing_inputs
from epd.topology.roles import topology_of
from epd.topology.storage import encoder_cache_claim, wants_collector

OPERATOR_IMAGE = f"epd-operator:{__version__}"
"""For reading; an installation has its own, given by `--operator-image`."""


def _without_owner(manifest: Manifest) -> Manifest:
    """An object that isn't in a cluster has no uid to be owned by."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "ownerReferences"}
    return manifest | {"metadata": metadata}


def render(epd: EPDDeployment, *, operator_image: str) -> list[Manifest]:
    """Return what the operator would apply for an object, the preflight included."""
    manifests = desired(epd, Context(operator_image=operator_image, preflight=True))
    return [manifest if epd.metadata.uid else _without_owner(manifest) for manifest in manifests]


def render_collectors(objects: Iterable[EPDDeployment], *, operator_image: str) -> list[Manifest]:
    """Return the collectors of the claims that objects keep their encoder cache on, one for all users of each."""
    users: dict[tuple[str, str], list[EPDDeployment]] = {}
    for epd in objects:
        if encoder_cache_claim(epd) is not None:
            users.setdefault((epd.metadata.namespace, collector_name(epd)), []).append(epd)
    context = Context(operator_image=operator_image)
    found = (collector(sharing, context) for sharing in users.values() if any(map(wants_collector, sharing)))
    return [_without_owner(manifest) for manifests in found for manifest in manifests]


def describe(epd: EPDDeployment) -> dict[str, Any]:
    """Return an object's two keys, what they are made of, and what was left out as harmless."""
    return {
        "name": epd.metadata.name,
        "topology": str(topology_of(epd.spec)),
        "url": url(epd),
        "engineVersion": engine_version(epd.spec.engine).status.model_dump(mode="json"),
        "modelVersion": model_version(epd.spec),
        "modelVersionMadeOf": version_inputs(epd.spec),
        "leftOutAsHarmless": harmless_names(epd.spec),
        "pairing": pairing(epd),
        "pairingMadeOf": pairing_inputs(epd),
    }


def _print(documents: Iterable[dict[str, Any]]) -> None:
    plain = [json.loads(json.dumps(document)) for document in documents]  # nothing shared, so YAML needs no anchors
    print(yaml.safe_dump_all(plain, sort_keys=False, width=10_000, explicit_start=True), end="")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(prog="kubectl epd", description="What epd-operator does with an EPDDeployment.")
    parser.add_argument("--version", action="version", version=__version__)
    file = argparse.ArgumentParser(add_help=False)
    file.add_argument("-f", "--filename", required=True, metavar="FILE", help='YAML file; "-" for standard input')
    file.add_argument("-n", "--namespace", default="default", help="for objects that name none (default %(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("render", parents=[file], help="print the objects that the operator would apply")
    command.add_argument("--operator-image", default=OPERATOR_IMAGE, help="image of the operator (default %(default)s)")
    commands.add_parser("version", parents=[file], help="print model version and pairing, and what they are made of")
    command = commands.add_parser("status", help="print the state of an object in the cluster, and what mends it")
    command.add_argument("name", metavar="NAME")
    command.add_argument("-n", "--namespace", help="default: that of the current context")
    return parser


def _run(arguments: argparse.Namespace) -> None:
    if arguments.command == "status":
        print(status.describe(get(arguments.name, namespace=arguments.namespace)), end="")
        return
    objects = read(arguments.filename, namespace=arguments.namespace)
    if arguments.command == "render":
        children = [child for epd in objects for child in render(epd, operator_image=arguments.operator_image)]
        _print(children + render_collectors(objects, operator_image=arguments.operator_image))
    else:
        _print(map(describe, objects))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0, or 1 with the reason on standard error."""
    arguments = build_parser().parse_args(argv)
    try:
        _run(arguments)
    except (DocumentError, ClusterError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
