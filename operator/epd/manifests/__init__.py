"""The children of an EPDDeployment, and the collector of a claim, as manifests. Pure: the same objects and context give
the same manifests.

One module per kind of child; this one puts them in the order in which they are applied. Nothing here knows what the
cluster holds.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from epd.api.types import EPDDeployment
from epd.manifests.claim import claim
from epd.manifests.collector_deployment import collector_deployment, collector_disagreement
from epd.manifests.collector_rbac import collector_access
from epd.manifests.connector_configmap import config_map_of, connector_configmap
from epd.manifests.context import Context, Manifest
from epd.manifests.preflight_job import preflight_job
from epd.manifests.proxy_deployment import proxy_deployment
from epd.manifests.rbac import access
from epd.manifests.role_deployment import role_deployment
from epd.manifests.service import service
from epd.topology.roles import roles_of

__all__ = ["Context", "Manifest", "collector", "collector_disagreement", "config_map_of", "desired"]


def desired(epd: EPDDeployment, context: Context) -> tuple[Manifest, ...]:
    """Return every child that `epd` shall have, in apply order.

    A pod finds its account, claim and connector when it starts, and the Service answers (503) before an engine is up.
    The preflight Job is immutable and outlives upgrades: one that exists under its name is left as it is.
    """
    roles = roles_of(epd.spec)
    children = (
        *access(epd),
        *claim(epd),
        service(epd),
        *connector_configmap(epd, context),
        *(role_deployment(epd, role, context) for role, _ in roles),
        proxy_deployment(epd, context),
        *(preflight_job(epd, context) if context.preflight else ()),
    )
    return tuple(copy.deepcopy(child) for child in children)  # so that none shares a part with another or a constant


def collector(
    users: Sequence[EPDDeployment], context: Context, *, access_modes: Sequence[str] = (), node: str = ""
) -> tuple[Manifest, ...]:
    """Return the collector of one directory of a claim, in apply order, for all who keep their cache there.

    Args:
        users: One at least; their order says nothing.
        context: What the operator knows of itself.
        access_modes: Those of the claim as the cluster has it; empty when not known.
        node: Where the engines are, if that can be one node only; empty when not known.
    """
    deployment = collector_deployment(users, context, access_modes=access_modes, node=node)
    children = (*collector_access(users), deployment)
    return tuple(copy.deepcopy(child) for child in children)
