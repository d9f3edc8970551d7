"""The children of an EPDDeployment, as manifests. Pure: the same object and context give the same manifests.

One module per kind of child; this one puts them in the order in which they are applied. Nothing here knows what the
cluster holds.
"""

from __future__ import annotations

import copy

from epd.api.types import EPDDeployment
from epd.manifests.claim import claim
from epd.manifests.context import Context, Manifest
from epd.manifests.preflight_job import preflight_job
from epd.manifests.proxy_deployment import proxy_deployment
from epd.manifests.rbac import access
from epd.manifests.role_deployment import role_deployment
from epd.manifests.service import service
from epd.topology.roles import roles_of

__all__ = ["Context", "Manifest", "desired"]


def desired(epd: EPDDeployment, context: Context) -> tuple[Manifest, ...]:
    """Return every child that `epd` shall have, in apply order.

    A pod finds its account and claim when it starts, and the Service answers (503) before an engine is up. The
    preflight Job is immutable and outlives upgrades: one that exists under its name is left as it is.
    """
    roles = roles_of(epd.spec)
    children = (
        *access(epd),
        *claim(epd),
        service(epd),
        *(role_deployment(epd, role) for role, _ in roles),
        proxy_deployment(epd, context),
        *(preflight_job(epd, context) if context.preflight else ()),
    )
    return tuple(copy.deepcopy(child) for child in children)  # so that none shares a part with another or a constant
