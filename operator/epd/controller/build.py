"""What this build of the operator makes of a spec: the seam between the reconciler and everything that renders.

Tests put two builds side by side that render differently. Holds no logic of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from epd import manifests
from epd.api.names import Reason
from epd.api.types import EPDDeployment
from epd.api.validation import problems as problems_of
from epd.controller.conditions import Finding
from epd.controller.kinds import Manifest
from epd.controller.status import Facts
from epd.manifests.service import url
from epd.topology import engine_version, model_version, roles


class Build(Protocol):
    """Pure functions of a spec."""

    def problem(self, epd: EPDDeployment) -> Finding | None:
        """Why the spec cannot be run, as the condition `Stalled` says it; None: it can."""

    def desired(self, epd: EPDDeployment, *, preflight: bool) -> tuple[Manifest, ...]:
        """The children in the order to apply them. Role Deployments carry the annotation `epd.dev/inputs`."""

    def collector(
        self, users: Sequence[EPDDeployment], *, access_modes: Sequence[str], node: str
    ) -> tuple[Manifest, ...]:
        """The collector of one directory of a claim, for all who keep their cache there (one at least)."""

    def disagreement(self, users: Sequence[EPDDeployment]) -> str | None:
        """What such users should make the same, in words; None if nothing."""

    def facts(self, epd: EPDDeployment) -> Facts:
        """What status tells of the spec itself."""


@dataclass(frozen=True, kw_only=True)
class ThisBuild:
    """The one that is installed."""

    operator_image: str
    operator_image_pull_policy: str | None = None

    def problem(self, epd: EPDDeployment) -> Finding | None:
        """All problems in one message: mending one at a time would take a rollout of tries."""
        if problems := problems_of(epd):
            return Finding.true(problems[0].reason, "; ".join(f"{p.path}: {p.message}" for p in problems))
        too_old = engine_version.unsupported(engine_version.engine_version(epd.spec.engine))
        return Finding.true(Reason.UNSUPPORTED_ENGINE, too_old) if too_old else None

    def desired(self, epd: EPDDeployment, *, preflight: bool) -> tuple[Manifest, ...]:
        """See `epd.manifests`."""
        return manifests.desired(epd, self.context(preflight=preflight))

    def collector(
        self, users: Sequence[EPDDeployment], *, access_modes: Sequence[str], node: str
    ) -> tuple[Manifest, ...]:
        """See `epd.manifests`."""
        return manifests.collector(users, self.context(preflight=False), access_modes=access_modes, node=node)

    def disagreement(self, users: Sequence[EPDDeployment]) -> str | None:
        """See `epd.manifests`."""
        return manifests.collector_disagreement(users)

    def context(self, *, preflight: bool) -> manifests.Context:
        """What rendering needs beyond the objects."""
        return manifests.Context(
            operator_image=self.operator_image,
            operator_image_pull_policy=self.operator_image_pull_policy,
            preflight=preflight,
        )

    def facts(self, epd: EPDDeployment) -> Facts:
        """See `epd.topology`."""
        return Facts(
            topology=roles.topology_of(epd.spec),
            model_version=model_version.model_version(epd.spec),
            engine_version=engine_version.engine_version(epd.spec.engine).status,
            url=url(epd),
            roles=roles.roles_of(epd.spec),
            desired={role: roles.desired_replicas(epd.spec, role) for role, _ in roles.roles_of(epd.spec)},
        )
