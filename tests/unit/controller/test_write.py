from __future__ import annotations

from typing import Any

import pytest

from epd.controller import errors
from epd.controller.keys import ClaimKey
from epd.controller.observe_claim import ObservedClaim
from epd.controller.plan import Mark, Taken
from epd.controller.write import COLLECTION_SECONDS, NameTaken, Writer, refuse

SERVICE = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "ai"}}
LABELS = {"app.kubernetes.io/managed-by": "epd-operator", "epd.dev/collector": "c"}


class Cluster:
    """Takes every write, or fails it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.sent: list[dict[str, Any]] = []

    async def apply(self, manifest: dict[str, Any], *, manager: str) -> dict[str, Any]:
        self.sent.append(manifest)
        if self.error:
            raise self.error
        return {**manifest, "metadata": {**manifest["metadata"], "labels": LABELS, "uid": "u"}}

    async def delete(self, manifest: dict[str, Any]) -> None:
        self.sent.append(manifest)
        if self.error:
            raise self.error


def writer(
    error: Exception | None = None, memo: dict[str, Mark] | None = None
) -> tuple[Cluster, Writer[ObservedClaim]]:
    cluster = Cluster(error)
    return cluster, Writer(cluster, {} if memo is None else memo, ObservedClaim(key=ClaimKey("ai", "c")))  # type: ignore[arg-type]  # only what is called


async def test_an_apply_is_remembered_and_later_ones_hold_its_uid() -> None:
    cluster, made = writer()
    await made.apply(SERVICE)
    await made.apply(SERVICE)
    assert [m["metadata"].get("uid") for m in cluster.sent] == [None, "u"]
    assert set(made.memo) == {"u"}
    await made.apply(SERVICE, manager="another")
    made.finish()
    assert set(made.memo) == {"u"}


async def test_what_is_forbidden_keeps_nothing_back_and_is_raised_in_the_end() -> None:
    first = errors.Forbidden("first")
    cluster, made = writer(first)
    await made.apply(SERVICE)
    await made.apply(SERVICE)
    assert len(cluster.sent) == 2
    with pytest.raises(errors.Forbidden, match="first"):
        made.finish()


async def test_other_errors_break_off() -> None:
    _, made = writer(errors.Conflict("409"))
    with pytest.raises(errors.Conflict):
        await made.apply(SERVICE)


async def test_what_is_deleted_or_gone_already_is_forgotten() -> None:
    for error in (None, errors.NotFound("404")):
        _, made = writer(error, {"u": Mark("m", "f")})
        await made.delete(SERVICE)
        made.finish()
        assert made.memo == {}


def test_a_taken_name_is_refused_and_one_that_becomes_free_waited_for() -> None:
    refuse(())
    with pytest.raises(NameTaken, match="ServiceAccount ai/a exists and belongs to Deployment d; nothing is applied"):
        refuse([Taken(SERVICE, "Deployment d", leaving=False)])
    with pytest.raises(errors.Retryable) as caught:
        refuse([Taken(SERVICE, "EPDDeployment q", leaving=True)])
    assert caught.value.after == COLLECTION_SECONDS
