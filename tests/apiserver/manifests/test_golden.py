"""What the operator renders, before a real API server: every field is known, every pod is *restricted*."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.server import Namespace
from golden.render import EXAMPLES, GOLDEN

pytestmark = pytest.mark.apiserver

RENDERED = sorted(GOLDEN.glob("*.yaml"))


def documents(path: Path, namespace: Namespace) -> list[dict[str, Any]]:
    """The file's objects, in the namespace of the test."""
    found = [document for document in yaml.safe_load_all(path.read_text()) if document]
    for document in found:
        for place in (document["metadata"], *document.get("subjects", [])):
            place["namespace"] = namespace.name
    return found


def pods(path: Path, namespace: Namespace) -> list[dict[str, Any]]:
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"] | {"name": document["metadata"]["name"]}}
        | {"spec": template["spec"]}
        for document in documents(path, namespace)
        if (template := document.get("spec", {}).get("template"))
    ]


@pytest.fixture
def restricted(namespace: Namespace) -> Namespace:
    """A namespace that refuses pods; what pods need besides is there."""
    namespace.kubectl("label", "namespace", namespace.name, "pod-security.kubernetes.io/enforce=restricted")
    accounts = {
        document["metadata"]["name"]: {**document, "metadata": {"name": document["metadata"]["name"]}}
        for path in RENDERED
        for document in documents(path, namespace)
        if document["kind"] == "ServiceAccount"
    }
    namespace.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(accounts.values()))
    return namespace


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_example_is_accepted(namespace: Namespace, path: Path) -> None:
    own = [document for document in documents(path, namespace) if document["kind"] == "EPDDeployment"]

    done = namespace.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(own))

    assert len(done.stdout.splitlines()) == len(own)


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.stem)
def test_every_child_is_accepted(namespace: Namespace, path: Path) -> None:
    children = documents(path, namespace)

    done = namespace.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        stdin=yaml.safe_dump_all(children),
    )

    assert (len(done.stdout.splitlines()), done.stderr) == (len(children), "")


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.stem)
def test_every_pod_is_restricted(restricted: Namespace, path: Path) -> None:
    given = pods(path, restricted)

    done = restricted.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(given))

    assert len(done.stdout.splitlines()) == len(given)


def test_the_check_refuses_what_is_not_restricted(restricted: Namespace) -> None:
    pod = pods(RENDERED[0], restricted)[0]
    pod["spec"]["containers"][0]["securityContext"] = {}

    done = restricted.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod), check=False)

    assert 'violates PodSecurity "restricted:latest"' in done.stderr
