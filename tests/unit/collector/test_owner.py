from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epd.collector.files import KernelFiles
from epd.collector.inputs import Claim
from epd.collector.owner import Owner, parse, settle

MINE = Claim(name="ns/a", uid="u1")
OWNER = {"format": 1, "rootId": "r", "claimUid": "u1", "claim": "ns/a", "former": ["ns/old"], "created": "c"}


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def settled(fd: int, claim: Claim = MINE, *, dry_run: bool = False, nonce: str = "n") -> tuple[Owner | None, str]:
    return settle(KernelFiles(), fd, claim, nonce=lambda: nonce, now=0.0, dry_run=dry_run)


def test_first_claim_becomes_the_owner(fd: int, tmp_path: Path) -> None:
    owner, why = settled(fd)

    assert (owner, why) == (
        Owner(root_id="n", claim_uid="u1", claim="ns/a", created="1970-01-01T00:00:00+00:00"),
        "",
    )
    assert parse(json.loads((tmp_path / "owner.json").read_text())) == owner
    assert os.listdir(tmp_path) == ["owner.json"]
    assert settled(fd, nonce="m") == (owner, "")


def test_the_second_claim_is_refused(fd: int, tmp_path: Path) -> None:
    (tmp_path / "owner.json").write_text(json.dumps(OWNER))
    before = (tmp_path / "owner.json").stat()

    owner, why = settled(fd, Claim(name="ns/b", uid="u2", adopts="another"))

    assert owner is None
    assert why.startswith("root r is owned by claim ns/a (uid u1). ")
    assert why.endswith("kubectl annotate pvc b epd.dev/adopt-encoder-cache-root=r")
    assert (tmp_path / "owner.json").stat() == before


@pytest.mark.parametrize("dry_run", [False, True])
def test_adoption_keeps_the_former_claims(fd: int, tmp_path: Path, dry_run: bool) -> None:
    (tmp_path / "owner.json").write_text(json.dumps(OWNER))

    owner, _ = settled(fd, Claim(name="ns/b", uid="u2", adopts="r"), dry_run=dry_run)

    root_id = "r" if dry_run else "n"
    assert owner == Owner(root_id=root_id, claim_uid="u2", claim="ns/b", former=("ns/old", "ns/a"), created="c")
    assert owner.names == {"ns/b", "ns/old", "ns/a"}
    written = parse(json.loads((tmp_path / "owner.json").read_text()))
    assert written == (parse(OWNER) if dry_run else owner)


def test_a_claim_that_lost_its_root_does_not_take_it_back_by_an_old_annotation(fd: int, tmp_path: Path) -> None:
    (tmp_path / "owner.json").write_text(json.dumps(OWNER))
    first, second = Claim(name="ns/b", uid="u2", adopts="r"), Claim(name="ns/c", uid="u3", adopts="n1")
    settled(fd, first, nonce="n1")

    owner, _ = settled(fd, second, nonce="n2")

    assert settled(fd, first, nonce="n3")[0] is None
    assert settled(fd, second, nonce="n4")[0] == owner


@pytest.mark.parametrize(
    "content",
    [{}, OWNER | {"format": 2}, OWNER | {"rootId": ""}, OWNER | {"claimUid": None}, OWNER | {"former": "x"}, None],
)
def test_nobody_owns_what_cannot_be_read(fd: int, tmp_path: Path, content: Any) -> None:
    (tmp_path / "owner.json").write_text("{" if content is None else json.dumps(content))

    owner, why = settled(fd, Claim(name="ns/a", uid="u1", adopts="r"))

    assert owner is None
    assert "cannot be read" in why


def test_19_dry_run_writes_no_owner(fd: int, tmp_path: Path) -> None:
    assert settled(fd, dry_run=True)[0] is not None
    assert os.listdir(tmp_path) == []
