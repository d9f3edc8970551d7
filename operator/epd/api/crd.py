"""Generates the CustomResourceDefinition of `EPDDeployment` from the types, the rules and the table of effects.

`python -m epd.api.crd` writes `crds/` and the chart's copy; `--check` writes nothing and fails if they differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from epd.api import names
from epd.api.cel import Rule
from epd.api.effects import effect
from epd.api.rules import FIELD_RULES, ROOT_RULES, SPEC_RULES
from epd.api.structural import Schema, structural
from epd.api.types import Spec, Status

_FILE: Final = f"{names.GROUP}_{names.PLURAL}.yaml"
PATHS: Final = (f"crds/{_FILE}", f"charts/epd-operator/files/{_FILE}")
"""Where the CustomResourceDefinition lies in the repository; the copies are identical."""

_HEADER: Final = "# Generated from operator/epd/api by `python -m epd.api.crd`; do not edit.\n"

_READY: Final = '.status.conditions[?(@.type=="Ready")]'
_COLUMNS: Final = (
    # name, JSONPath, type, priority: 0 in the plain table, 1 in `-o wide`
    ("Model", ".spec.model.name", "string", 0),
    ("Roles", ".status.roleSummary", "string", 0),
    ("Available", '.status.conditions[?(@.type=="Available")].status', "string", 0),
    ("Ready", f"{_READY}.status", "string", 0),
    ("Reason", f"{_READY}.reason", "string", 0),
    ("URL", ".status.url", "string", 0),
    ("Age", ".metadata.creationTimestamp", "date", 0),
    ("Topology", ".status.topology", "string", 1),
    ("Version", ".status.modelVersion", "string", 1),
    ("EC Used", ".status.encoderCache.used", "string", 1),
    ("Image", ".spec.engine.image", "string", 1),
    ("Engine", ".status.engineVersion.version", "string", 1),
)

STATUS_DEFAULT: Final[Schema] = {
    "observedGeneration": 0,
    "conditions": [
        {
            "type": names.ConditionType.READY.value,
            "status": "Unknown",
            "reason": names.Reason.PENDING.value,
            "message": "Waiting for the operator",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
            "observedGeneration": 0,
        }
    ],
}
"""What clients see before the first reconcile, so that `kubectl wait`, helm, Flux and Argo CD wait.

Generation 0 is older than any, so kstatus too sees work in progress. The time is a constant because a default must be.
"""


_UNION_MEMBERS: Final = (
    "encode",
    "prefillDecode",
    "model.source",
    "encoderCache.volume",
    "encoderCache.custom",
    "proxy.scaling",
)
"""Paths below `spec` that exclude others, or make a topology together with them."""


def _rules(rules: Sequence[Rule]) -> list[dict[str, str]]:
    return [rule.schema() for rule in rules]


def _annotate_spec(path: str, schema: Schema) -> None:
    """Add what a change does, and the field's rules."""
    if not path.endswith("]") and (found := effect(path)):
        description = f"{schema.get('description', '')} Change: {found.value.sentence}"
        schema["description"] = description.strip()
    if rules := FIELD_RULES.get(path):
        schema["x-kubernetes-validations"] = _rules(rules)


def _annotate_status(path: str, schema: Schema) -> None:
    """Nothing to add: users do not change the status."""


def openapi_schema() -> Schema:
    """Return the structural schema of the whole object."""
    spec = structural(Spec, annotate=_annotate_spec, unions=_UNION_MEMBERS)
    spec["x-kubernetes-validations"] = _rules(SPEC_RULES)
    status = structural(Status, annotate=_annotate_status)
    status["default"] = STATUS_DEFAULT
    return {
        "description": "One multimodal model on vLLM, with encoder and language model as separate workloads, wired "
        "together behind one OpenAI-compatible endpoint.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "maxLength": 253, "description": f"`{names.API_VERSION}`."},
            "kind": {"type": "string", "maxLength": 63, "description": f"`{names.KIND}`."},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": _rules(ROOT_RULES),
    }


def custom_resource_definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition as an object."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
                "categories": ["vllm"],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "jsonPath": path, "type": kind} | ({"priority": priority} if priority else {})
                        for name, path, kind, priority in _COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": openapi_schema()},
                }
            ],
        },
    }


class _Plain(yaml.SafeDumper):
    """Writes equal parts out instead of as anchors, which no reader of a CustomResourceDefinition expects."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (PyYAML's signature)
        return True


def render() -> str:
    """Return the CustomResourceDefinition as the file's text."""
    document = yaml.dump(custom_resource_definition(), Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)
    return _HEADER + document


def write(files: dict[str, str], *, root: Path, check: bool) -> list[str]:
    """Write `files` (path below `root` -> text), or only compare; return the paths that differed."""
    stale = []
    for name, text in files.items():
        path = root / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return stale


def generate(files: dict[str, str], argv: Sequence[str] | None, *, description: str) -> int:
    """Run a generator's command line: `--check` compares, `--root` is the repository."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[3], help="the repository")
    arguments = parser.parse_args(argv)
    stale = write(files, root=arguments.root, check=arguments.check)
    for name in stale:
        print(f"{name}: {'differs; run make generate' if arguments.check else 'written'}", file=sys.stderr)
    return 1 if stale and arguments.check else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare the CustomResourceDefinition's copies."""
    return generate(dict.fromkeys(PATHS, render()), argv, description="Generate the CustomResourceDefinition.")


if __name__ == "__main__":
    sys.exit(main())
