"""Carries a plan out, write by write, in an order that is safe to break off at any point.

Revisions come before the templates they keep, a scaler's `replicas` before the apply that lets go of them, deletions
last. Decides nothing: `revisions`, `replicas` and `plan` do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from epd.api import names
from epd.api.names import Role
from epd.api.types import EPDDeployment, RoleSpec, ScalingMode
from epd.controller import kinds, plan, replicas, revisions
from epd.controller.cluster import Cluster
from epd.controller.errors import Forbidden, NotFound, Retryable
from epd.controller.kinds import Manifest, kind_of, name_of, uid_of
from epd.controller.observe import Observed
from epd.controller.revisions import Renderings

logger = logging.getLogger(__name__)

COLLECTION_SECONDS = 2.0
"""How soon to look again for children of an earlier object of this name: the garbage collector needs about as long."""


class NameTaken(Exception):  # noqa: N818 (a state, told to the user)
    """A child's name belongs to something that is not ours."""


def role_deployments(epd: EPDDeployment, desired: tuple[Manifest, ...]) -> dict[Role, Manifest]:
    """The roles' Deployments among the wanted children."""
    by_name = {name_of(m): m for m in desired if kind_of(m) == kinds.DEPLOYMENT}
    wanted = {role: names.role_deployment(epd.metadata.name, role) for role in Role}
    return {role: by_name[name] for role, name in wanted.items() if name in by_name}


def kept(manifest: Manifest, deployments: Mapping[Role, Manifest], renderings: Renderings) -> Manifest:
    """The manifest as it is to be applied: a role's Deployment with the template that counts now."""
    role = next((role for role, deployment in deployments.items() if deployment is manifest), None)
    return manifest if role is None else revisions.with_template(manifest, renderings.templates[role])


def differs(desired: tuple[Manifest, ...], observed: Observed) -> bool:
    """Whether children of a paused object are visibly not what its spec says: absent, of other inputs, or number."""

    def outdated(manifest: Manifest, live: Manifest) -> bool:
        wanted = (manifest["metadata"].get("annotations") or {}).get(names.ANNOTATION_INPUTS)
        held = (live["metadata"].get("annotations") or {}).get(names.ANNOTATION_INPUTS)
        count = manifest.get("spec", {}).get("replicas")
        return wanted != held or (count is not None and count != live["spec"].get("replicas"))

    pairs = ((m, observed.child(kind_of(m), name_of(m))) for m in desired)
    return any(live is None or outdated(m, live) for m, live in pairs if kind_of(m) != kinds.JOB)


class Executor:
    """Writes for one object. `memo` is kept between reconciles; `observed` becomes the state after the writes."""

    def __init__(self, cluster: Cluster, memo: dict[str, plan.Mark], observed: Observed) -> None:
        self._cluster = cluster
        self._memo = memo
        self.observed = observed

    async def execute(self, epd: EPDDeployment, desired: tuple[Manifest, ...], renderings: Renderings) -> None:
        """Make the children what they should be.

        Raises:
            NameTaken, Rejected: only another spec, or another cluster, mends it.
            Forbidden: after everything else was tried.
            ClusterError: broken off.
        """
        desired = self._with_replicas_left_out(epd, desired)
        self._refuse_taken(plan.plan((*renderings.write, *desired), self.observed, self._memo).taken)
        refused: list[Forbidden] = []
        for revision in renderings.write:
            await self._apply(revision, refused)
        await self._hand_over_replicas(epd, refused)
        todo = plan.plan(desired, self.observed, self._memo)
        for manifest in todo.apply:
            await self._apply(manifest, refused)
        for live in (*todo.delete, *renderings.delete):
            await self._delete(live)
        present = {uid_of(live) for live in self.observed.children.values()}
        for uid in set(self._memo) - present:
            del self._memo[uid]
        if refused:
            raise refused[0]

    def _with_replicas_left_out(self, epd: EPDDeployment, desired: tuple[Manifest, ...]) -> tuple[Manifest, ...]:
        scaled = {name_of(m): m for role, m in role_deployments(epd, desired).items() if _external(epd, role)}
        return tuple(
            replicas.main_manifest(
                m,
                live=self.observed.child(kinds.DEPLOYMENT, name_of(m)),
                external=kind_of(m) == kinds.DEPLOYMENT and name_of(m) in scaled,
                suspended=epd.spec.suspend,
            )
            for m in desired
        )

    @staticmethod
    def _refuse_taken(taken: tuple[plan.Taken, ...]) -> None:
        for one in taken:
            kind, name = one.manifest["kind"], name_of(one.manifest)
            if one.leaving:
                raise Retryable(
                    f"{kind} {name} of an earlier {names.KIND} is still being collected", after=COLLECTION_SECONDS
                )
            raise NameTaken(
                f"{kind} {one.manifest['metadata']['namespace']}/{name} exists and belongs to {one.owner}; nothing is "
                f"applied. Delete it, or rename the {names.KIND}."
            )

    async def _hand_over_replicas(self, epd: EPDDeployment, refused: list[Forbidden]) -> None:
        for role in Role:
            if _role_spec(epd, role) is None:
                continue
            live = self.observed.child(kinds.DEPLOYMENT, names.role_deployment(epd.metadata.name, role))
            body = replicas.hand_over(live, external=_external(epd, role), suspended=epd.spec.suspend)
            if body is not None:
                await self._apply(body, refused, manager=names.REPLICAS_FIELD_MANAGER)

    async def _apply(self, manifest: Manifest, refused: list[Forbidden], *, manager: str = names.FIELD_MANAGER) -> None:
        live = self.observed.child(kind_of(manifest), name_of(manifest))
        # The UID is a precondition: an object that was replaced since it was listed is not the one decided about.
        metadata = {**manifest["metadata"], "uid": uid_of(live)} if live is not None else manifest["metadata"]
        try:
            applied = await self._cluster.apply({**manifest, "metadata": metadata}, manager=manager)
        except Forbidden as e:
            # One right that is missing, or a policy about one kind, must not keep back all that comes after it.
            refused.append(e)
            return
        logger.info("applied %s %s as %s", manifest["kind"], name_of(manifest), manager)
        if manager == names.FIELD_MANAGER:
            self._memo[uid_of(applied)] = plan.mark(manifest, applied)
        self.observed = self.observed.with_children([applied])

    async def _delete(self, live: Manifest) -> None:
        try:
            await self._cluster.delete(live)
        except NotFound:
            pass
        else:
            logger.info("deleted %s %s", live["kind"], name_of(live))
        self.observed = self.observed.with_children((), gone=[live])


def _role_spec(epd: EPDDeployment, role: Role) -> RoleSpec | None:
    return {Role.ENCODE: epd.spec.encode, Role.PREFILL_DECODE: epd.spec.prefill_decode}.get(role)


def _external(epd: EPDDeployment, role: Role) -> bool:
    spec = _role_spec(epd, role)
    return spec is not None and spec.scaling.mode == ScalingMode.EXTERNAL
