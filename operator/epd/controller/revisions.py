"""An upgrade of the operator alone restarts no engine: the rendered pod template is kept in a ControllerRevision.

As long as a role's inputs (annotation `epd.dev/inputs`, a hash of what the user wrote) are the same, the template that
was rendered for them is applied again, whatever this build of the operator would render; so drift still heals. A
change of the user takes the new rendering. A role that is gone takes its revisions with it. Pure: says which revisions
to write and delete.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from epd.api import names
from epd.api.names import Role
from epd.controller import kinds
from epd.controller.kinds import Manifest, name_of
from epd.controller.plan import digest
from epd.manifests import config_map_of

HISTORY_LIMIT: Final = 10
"""Revisions kept per role, the current one included: the default of a Deployment's revisionHistoryLimit."""


@dataclass(frozen=True, kw_only=True)
class Renderings:
    """Which templates count now.

    `templates` maps a role to the pod template to apply; `write` and `delete` are ControllerRevisions; `outdated` are
    the roles whose kept template differs from what this build would render.
    """

    templates: Mapping[Role, dict[str, Any]]
    write: tuple[Manifest, ...] = ()
    delete: tuple[Manifest, ...] = ()
    outdated: tuple[Role, ...] = ()


def resolve(
    deployments: Mapping[Role, Manifest], revisions: Iterable[Manifest], *, config_maps: Container[str] = ()
) -> Renderings:
    """Choose between kept and new renderings of the roles' Deployments.

    The choice is made for the roles together: when one takes a new rendering, any other whose new rendering has
    another pairing takes it too, or the two would never be paired. A kept template that mounts a connector's source
    which is not among `config_maps` is not kept: this build cannot make it again, and no pod could start from it.
    """
    revisions = tuple(revisions)
    history = {role: _history(role, revisions) for role in deployments}
    kept = {
        role: history[role][-1]["data"]["template"]
        for role, deployment in deployments.items()
        if history[role]
        and history[role][-1]["data"].get("inputs") == _inputs(deployment)
        and _startable(history[role][-1]["data"]["template"], config_maps)
    }
    if len(kept) < len(deployments):
        kept = {role: t for role, t in kept.items() if _pairing(t) == _pairing(_template(deployments[role]))}
    taken = {role: d for role, d in deployments.items() if role not in kept}
    write = {role: _revision(role, d, history[role]) for role, d in taken.items()}
    return Renderings(
        templates={role: kept.get(role, _template(d)) for role, d in deployments.items()},
        write=tuple(write.values()),
        delete=(
            *(m for role in deployments for m in _expired(history[role], write.get(role))),
            *(r for r in revisions if _role_label(r) not in deployments),
        ),
        outdated=tuple(role for role, template in kept.items() if template != _template(deployments[role])),
    )


def with_template(deployment: Manifest, template: dict[str, Any]) -> Manifest:
    """The Deployment with another pod template; what does not restart pods stays as rendered."""
    return {**deployment, "spec": {**deployment["spec"], "template": template}}


def _history(role: Role, revisions: Iterable[Manifest]) -> list[Manifest]:
    mine = (r for r in revisions if _role_label(r) == role)
    return sorted(mine, key=lambda r: (int(r["revision"]), name_of(r)))


def _role_label(revision: Manifest) -> str:
    return str((revision["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT, ""))


def _inputs(deployment: Manifest) -> str:
    return str(deployment["metadata"]["annotations"][names.ANNOTATION_INPUTS])


def _template(deployment: Manifest) -> dict[str, Any]:
    template: dict[str, Any] = deployment["spec"]["template"]
    return template


def _startable(template: Mapping[str, Any], config_maps: Container[str]) -> bool:
    mounted = config_map_of(template["spec"])
    return mounted is None or mounted in config_maps


def _pairing(template: Mapping[str, Any]) -> str | None:
    labels: Mapping[str, str] = template["metadata"].get("labels") or {}
    return labels.get(names.LABEL_PAIRING)


def _revision(role: Role, deployment: Manifest, history: list[Manifest]) -> Manifest:
    meta = deployment["metadata"]
    data = {"inputs": _inputs(deployment), "template": _template(deployment)}
    return {
        "apiVersion": kinds.CONTROLLER_REVISION.api_version,
        "kind": kinds.CONTROLLER_REVISION.kind,
        "metadata": {
            # By content: going back to what once was takes up that revision again with a new number, as
            # StatefulSets do (`data` is immutable, `revision` is not).
            "name": f"{meta['name']}-{digest(data)[:10]}",
            "namespace": meta["namespace"],
            "labels": {
                **{k: v for k, v in (meta.get("labels") or {}).items() if k != names.LABEL_MODEL_VERSION},
                names.LABEL_COMPONENT: str(role),
            },
            "ownerReferences": meta["ownerReferences"],
        },
        "data": data,
        "revision": int(history[-1]["revision"]) + 1 if history else 1,
    }


def _expired(history: list[Manifest], written: Manifest | None) -> list[Manifest]:
    others = [r for r in history if written is None or name_of(r) != name_of(written)]
    room = HISTORY_LIMIT - (1 if written is not None else 0)
    return others[: max(0, len(others) - room)]
