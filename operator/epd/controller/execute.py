"""Carries a plan out, write by write, in an order that is safe to break off at any point.

Revisions come before the templates they keep, a scaler's `replicas` before the apply that lets go of them, deletions
last. Decides nothing: `revisions`, `replicas` and `plan` do.
"""

from __future__ import annotations

from collections.abc import Mapping

from epd.api import names
from epd.api.names import Role
from epd.api.types import EPDDeployment, Scaling, ScalingMode
from epd.controller import kinds, plan, replicas, revisions, write
from epd.controller.kinds import Manifest, kind_of, name_of
from epd.controller.observe import Observed
from epd.controller.revisions import Renderings


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
    """Whether children of a paused object visibly differ from its spec: absent, of other inputs, number or port."""

    def outdated(manifest: Manifest, live: Manifest) -> bool:
        if kind_of(manifest) == kinds.SERVICE:
            return _served(manifest) != _served(live)
        wanted = (manifest["metadata"].get("annotations") or {}).get(names.ANNOTATION_INPUTS)
        held = (live["metadata"].get("annotations") or {}).get(names.ANNOTATION_INPUTS)
        count = manifest.get("spec", {}).get("replicas")
        # Proxies that an earlier version made carry no inputs: of these nothing is known.
        return (held is not None and wanted != held) or (count is not None and count != live["spec"].get("replicas"))

    pairs = ((m, observed.child(kind_of(m), name_of(m))) for m in desired)
    return any(live is None or outdated(m, live) for m, live in pairs if kind_of(m) != kinds.JOB)


def _served(service: Manifest) -> tuple[str, list[tuple[str, int]]]:
    spec = service["spec"]
    return spec["type"], [(port["name"], port["port"]) for port in spec["ports"]]


class Executor(write.Writer[Observed]):
    """Writes for one EPDDeployment."""

    async def execute(self, epd: EPDDeployment, desired: tuple[Manifest, ...], renderings: Renderings) -> None:
        """Make the children what they should be.

        Raises:
            NameTaken, Rejected: only another spec, or another cluster, mends it.
            Forbidden: after everything else was tried.
            ClusterError: broken off.
        """
        desired = self._with_replicas_left_out(epd, desired)
        write.refuse(plan.plan((*renderings.write, *desired), self.observed, self.memo).taken)
        for revision in renderings.write:
            await self.apply(revision)
        await self._hand_over_replicas(epd)
        todo = plan.plan(desired, self.observed, self.memo)
        for manifest in todo.apply:
            await self.apply(manifest)
        for live in (*todo.delete, *renderings.delete):
            await self.delete(live)
        self.finish()

    def _with_replicas_left_out(self, epd: EPDDeployment, desired: tuple[Manifest, ...]) -> tuple[Manifest, ...]:
        scalings = _scalings(epd)
        return tuple(
            replicas.main_manifest(
                m,
                live=self.observed.child(kinds.DEPLOYMENT, name_of(m)),
                external=kind_of(m) == kinds.DEPLOYMENT and _external(scalings.get(name_of(m))),
                suspended=_suspended(epd, name_of(m)),
            )
            for m in desired
        )

    async def _hand_over_replicas(self, epd: EPDDeployment) -> None:
        for name, scaling in _scalings(epd).items():
            live = self.observed.child(kinds.DEPLOYMENT, name)
            body = replicas.hand_over(live, external=_external(scaling), suspended=_suspended(epd, name))
            if body is not None:
                await self.apply(body, manager=names.REPLICAS_FIELD_MANAGER)


def _scalings(epd: EPDDeployment) -> dict[str, Scaling]:
    """Who sets the replicas, by name of the Deployment."""
    name, spec = epd.metadata.name, epd.spec
    roles = {Role.ENCODE: spec.encode, Role.PREFILL_DECODE: spec.prefill_decode}
    found = {names.role_deployment(name, role): given.scaling for role, given in roles.items() if given is not None}
    return found | {names.proxy(name): spec.proxy.scaling}


def _external(scaling: Scaling | None) -> bool:
    return scaling is not None and scaling.mode == ScalingMode.EXTERNAL


def _suspended(epd: EPDDeployment, name: str) -> bool:
    """The proxy stays, to say so."""
    return epd.spec.suspend and name != names.proxy(epd.metadata.name)
