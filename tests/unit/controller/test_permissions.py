from __future__ import annotations

from epd.controller import kinds
from epd.controller.kinds import Kind
from epd.controller.permissions import PERMISSIONS, allowed


def test_nothing_is_a_wildcard_and_secrets_are_not_read() -> None:
    words = {word for p in PERMISSIONS for word in (p.group, p.resource, *p.verbs)}
    assert "*" not in words
    assert "secrets" not in words
    assert len({(p.group, p.resource) for p in PERMISSIONS}) == len(PERMISSIONS)
    assert all(list(p.verbs) == sorted(set(p.verbs)) for p in PERMISSIONS)


def test_allowed() -> None:
    assert allowed(kinds.EPD, "patch", "status")
    assert not allowed(kinds.EPD, "delete")
    assert not allowed(kinds.POD, "delete")
    assert not allowed(Kind("extensions", "v1", "Pod", "pods"), "get")


def test_whatever_is_watched_can_be_listed() -> None:
    assert [k.plural for k in kinds.WATCHED if not (allowed(k, "list") and allowed(k, "watch"))] == []
