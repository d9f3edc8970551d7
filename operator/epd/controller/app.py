"""kopf: logs in, watches, and hands keys to our queue. Nothing else, and the only module that imports kopf.

No handler keeps state (those write annotations and finalizers), none decides anything, and kopf's memory of objects is
never taken for the truth: it misses what vanished while a watch was down. Reconciles read for themselves.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import kopf

from epd.api import names
from epd.controller import kinds
from epd.controller.kinds import Kind, Manifest

CONNECT_TIMEOUT_SECONDS: Final = 10.0
"""A SYN that is dropped would otherwise hang for minutes."""

SERVER_TIMEOUT_SECONDS: Final = 300
"""The API server ends a watch so soon at the latest, and it is opened anew: no connection lives for hours unseen.
An integer: the API server refuses `timeoutSeconds=300.0`."""

CLIENT_TIMEOUT_SECONDS: Final = 330.0
"""We end it ourselves when the API server has not."""

EXIT_TIMEOUT_SECONDS: Final = 25.0
"""kopf kills the process so long after the signal; below the chart's terminationGracePeriodSeconds of 30."""

WORKER_IDLE_SECONDS: Final = 1.0
"""kopf waits so long for its workers when it ends (5 by default): under Recreate that is time without an operator."""

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Deliver = Callable[[Kind, Manifest], None]
"""Called for each watch event with the object; must not block."""


async def watch(
    *,
    namespaces: tuple[str, ...],
    deliver: Deliver,
    started: Callable[[], None],
    stop: asyncio.Event,
) -> None:
    """Watch parents and labelled children until `stop` is set; raises when a watch fails for good.

    `started` is called when the watches are about to open; from then on signals are its caller's: kopf takes them
    while it starts. No namespaces: all of them.
    """
    ours = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=_registry(deliver),
        settings=_settings(),
        standalone=True,  # no peering object: a second operator is kept away by Recreate
        clusterwide=not namespaces,
        namespaces=namespaces,
        stop_flag=stop,
    )
    started()
    # In the end kopf cancels whatever task the loop has, but for these.
    await kopf.run_tasks(tasks, ignored=ours | asyncio.all_tasks() - set(tasks))


def _registry(deliver: Deliver) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return _in_cluster() or kopf.login_with_kubeconfig(**kwargs)

    def enqueue(kind: Kind) -> None:
        @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=f"enqueue-{kind.plural}")
        async def changed(event: kopf.RawEvent, **_: Any) -> None:
            deliver(kind, dict(event["object"]))

    for kind in kinds.WATCHED:
        enqueue(kind)
    return registry


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # Events are our recorder's
    settings.scanning.disabled = True  # needs rights on CustomResourceDefinitions and Namespaces that we do without
    settings.queueing.idle_timeout = WORKER_IDLE_SECONDS
    settings.process.ultimate_exiting_timeout = EXIT_TIMEOUT_SECONDS
    settings.networking.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.watching.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = CLIENT_TIMEOUT_SECONDS
    ours = f"{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}"  # also on what belongs to several, such as collectors
    for kind in kinds.WATCHED:
        if kind != kinds.EPD:
            settings.watching.label_selectors[kind.group, kind.version, kind.plural] = ours
    return settings


def _in_cluster() -> kopf.ConnectionInfo | None:
    """The pod's service account. kopf's own login goes by the name kubernetes.default.svc; the variables need no DNS.

    Called anew after a 401, so an expired token is replaced by the one that the kubelet has put there since.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or "KUBECONFIG" in os.environ:
        return None
    address = f"[{host}]" if ":" in host else host
    return kopf.ConnectionInfo(
        server=f"https://{address}:{port}",
        ca_path=str(_SERVICE_ACCOUNT / "ca.crt"),
        token=(_SERVICE_ACCOUNT / "token").read_text(encoding="utf-8").strip(),
    )
