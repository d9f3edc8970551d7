"""The pod watch against an API server of loopback sockets, found by a kubeconfig."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from epd.api.names import Role
from epd.proxy.apiserver import KubernetesPods, by_kubeconfig
from epd.proxy.pods import Members
from epd.proxy.watch import follow
from protocol.proxy.apiservers import ApiServer, pod
from protocol.proxy.stubs import until

GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}


@dataclass
class Following:
    server: ApiServer
    members: Members
    errors: list[None]

    def names(self) -> list[str]:
        return [member.name for member in self.members.ready(Role.ENCODE)]


@pytest.fixture
async def following(tmp_path: Path) -> AsyncIterator[Following]:
    server = ApiServer({"a": pod("a"), "b": pod("b")})
    async with server.serve() as url:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": url}}],
            "users": [{"name": "test", "user": {"token": "t"}}],
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        source = KubernetesPods(await by_kubeconfig(str(tmp_path / "kubeconfig")), namespace="ns", epd="demo")
        members, errors = Members(), []

        async def soon(_: float) -> None:
            await asyncio.sleep(0.005)

        async with source:
            task = asyncio.create_task(follow(source, members, on_error=lambda: errors.append(None), sleep=soon))
            yield Following(server, members, errors)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_it_lists_then_watches_from_there(following: Following) -> None:
    await until(lambda: len(following.server.queries) == 2)
    assert following.names() == ["a", "b"]
    assert following.server.authorizations == ["Bearer t"] * 2
    listing, watching = following.server.queries
    selector = {"labelSelector": "epd.dev/name=demo,llm-d.ai/role"}
    assert listing == {**selector, "limit": "500"}
    assert watching == {**selector, "watch": "true", "resourceVersion": "7", "timeoutSeconds": "120"}


async def test_events_move_members(following: Following) -> None:
    deleting = pod("b")
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    deleting["metadata"]["annotations"] = {"large": "x" * 300_000}
    for kind, changed, names in (
        ("ADDED", pod("c"), ["a", "b", "c"]),
        ("MODIFIED", pod("a", ready=False), ["b", "c"]),
        ("MODIFIED", deleting, ["c"]),
        ("DELETED", pod("c"), []),
    ):
        following.server.events.put_nowait({"type": kind, "object": changed})
        await until(lambda names=names: following.names() == names)
    assert len(following.server.queries) == 2


async def test_a_pod_that_vanished_unseen_leaves_after_410(following: Following) -> None:
    await until(lambda: following.names() == ["a", "b"])
    del following.server.pods["a"]
    following.server.events.put_nowait(GONE)
    await until(lambda: following.names() == ["b"])
    assert following.errors == [None]


async def test_a_watch_that_ends_is_followed_by_a_list(following: Following) -> None:
    await until(lambda: following.names() == ["a", "b"])
    del following.server.pods["b"]
    following.server.events.put_nowait(None)
    await until(lambda: following.names() == ["a"])
    assert following.errors == []


async def test_the_last_known_members_stay_while_the_api_server_is_away(following: Following) -> None:
    await until(lambda: following.names() == ["a", "b"])
    following.server.failing = 500
    following.server.events.put_nowait(None)
    await until(lambda: len(following.errors) >= 3)
    assert following.names() == ["a", "b"]
    assert following.members.synced
    del following.server.pods["a"]
    following.server.failing = 0
    await until(lambda: following.names() == ["b"])
