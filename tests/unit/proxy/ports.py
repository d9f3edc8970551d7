"""A data port without sockets, and turns of requests at it."""

from __future__ import annotations

from pathlib import Path

from epd.api.names import Role
from epd.proxy.access_log import AccessLog
from epd.proxy.api_keys import ApiKeys
from epd.proxy.bodies import Bodies
from epd.proxy.exchange import Exchange
from epd.proxy.head import parse_head
from epd.proxy.isolation import Isolation, TenantIsolation
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Members
from epd.proxy.routing import InFlight
from epd.proxy.server import DataPort
from epd.proxy.settings import EncoderFailurePolicy, Limits, Settings
from epd.proxy.tenancy import Tenancy
from epd.proxy.tenant_series import TenantSeries
from epd.proxy.transport import Transport
from epd.proxy.turns import RequestTurn
from unit.proxy.mounts import Mount

CHAT = "POST /v1/chat/completions"
ACME, BETA = "sk-aaaaaaaaaaaaaaaa", "sk-bbbbbbbbbbbbbbbb"
OF_ACME, OF_BETA = f"Authorization: Bearer {ACME}", f"x-api-key: {BETA}"


def port(
    *,
    limits: Limits | None = None,
    origins: frozenset[str] = frozenset(),
    room: int | None = None,
    keys: Path | None = None,
    suspended: bool = False,
    access_log: AccessLog | None = None,
) -> DataPort:
    limits = limits or Limits()
    settings = Settings(
        host="127.0.0.1",
        port=0,
        admin_port=0,
        roles=frozenset({Role.ENCODE, Role.PREFILL_DECODE}),
        limits=limits,
        allowed_origins=origins,
        suspended=suspended,
    )
    metrics = Metrics(namespace="ns", epd="demo")
    exchange = Exchange(
        encodes=True,
        rewrites=False,
        policy=EncoderFailurePolicy.FALLBACK,
        limits=limits,
        transport=Transport(),  # never used
        members=Members(),
        load=InFlight(),
        metrics=metrics,
    )
    tenancy = None
    if keys is not None:
        series = TenantSeries(metrics, namespace="ns", epd="demo")
        read = ApiKeys(Mount(keys, {"acme": ACME, "beta": BETA}).path, on_read=series.read)
        isolation = Isolation(TenantIsolation.SALTED, settings.media)
        tenancy = Tenancy(keys=read, isolation=isolation, most=limits.max_in_flight_per_tenant, series=series)
    return DataPort(
        settings=settings,
        exchange=exchange,
        metrics=metrics,
        bodies=Bodies(room=room),
        tenancy=tenancy,
        access_log=access_log,
    )


def turn(data_port: DataPort, line: str, *fields: str) -> RequestTurn:
    head = "\r\n".join([f"{line} HTTP/1.1", "Host: p", *fields, ""]).encode()
    return data_port.turn(parse_head(head, len(head)))
