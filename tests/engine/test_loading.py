"""Local copies and pins on their way to a device."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from blake3 import blake3

WIDTH = 1024
CPU, META = torch.device("cpu"), torch.device("meta")
"""The latter holds no bytes: what is taken to it is only looked at."""
SMALL, LARGE = 16, 1024
"""Rows: 32 KiB and 2 MiB."""


@pytest.fixture
def loading(delivered: Any) -> ModuleType:
    from epd_connector import loading

    return loading


def source(path: Path, rows: int, *, offset: int = 0, checksum: bool = False) -> tuple[Any, torch.Tensor]:
    """A file and how to load it, and what is in it."""
    from epd_connector.holdings import Load

    tensor = torch.randn((rows, WIDTH), generator=torch.Generator().manual_seed(rows)).to(torch.bfloat16)
    data = tensor.view(torch.uint8).numpy().tobytes()
    path.write_bytes(bytes(offset) + data)
    digest = blake3(data).hexdigest() if checksum else None
    return Load("a", str(path), offset, rows, WIDTH, "BF16", digest), tensor


@pytest.mark.parametrize("rows", [SMALL, LARGE])
@pytest.mark.parametrize(("offset", "checksum"), [(0, False), (320, True)])
def test_a_processor_gets_memory_of_its_own(loading, tmp_path, rows, offset, checksum):
    load, tensor = source(tmp_path / "a", rows, offset=offset, checksum=checksum)
    loaded = loading.onto(CPU, load)
    (tmp_path / "a").write_bytes(bytes(offset + load.rows * WIDTH * 2))  # the scheduler gave the memory to another copy
    assert torch.equal(loaded, tensor)


@pytest.mark.parametrize(("rows", "checksum", "reads"), [(SMALL, False, 1), (LARGE, False, 0), (LARGE, True, 1)])
def test_only_large_local_copies_are_mapped_for_a_device(loading, tmp_path, monkeypatch, rows, checksum, reads):
    calls = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *arguments: calls.append(arguments) or preadv(*arguments))
    load, tensor = source(tmp_path / "a", rows, checksum=checksum)
    loaded = loading.onto(META, load)
    assert (len(calls), loaded.shape, loaded.dtype, loaded.device) == (reads, tensor.shape, tensor.dtype, META)


def test_a_mapping_has_the_bytes_and_cannot_change_the_copy(loading, tmp_path):
    load, tensor = source(tmp_path / "a", LARGE, offset=320)
    fd = os.open(load.path, os.O_RDONLY)
    mapping = loading.mapped(fd, load, tensor.nbytes)
    os.close(fd)
    assert torch.equal(mapping.view(torch.bfloat16).reshape(tensor.shape), tensor)
    mapping.zero_()
    assert torch.equal(loading.onto(CPU, load), tensor)


@pytest.mark.parametrize("device", [CPU, META])
def test_a_source_that_is_too_short_is_an_error(loading, tmp_path, device):
    load, tensor = source(tmp_path / "a", LARGE)
    os.truncate(load.path, tensor.nbytes - 1)
    with pytest.raises(EOFError):
        loading.onto(device, load)


def test_a_pin_that_is_not_what_was_pinned_is_an_error(loading, tmp_path):
    load, _ = source(tmp_path / "a", SMALL, checksum=True)
    with (tmp_path / "a").open("r+b") as file:
        file.write(b"\xff\xff")
    with pytest.raises(ValueError, match="not what was pinned"):
        loading.onto(META, load)


def test_a_link_in_the_place_of_a_copy_is_not_followed(loading, tmp_path):
    load, _ = source(tmp_path / "b", SMALL)
    (tmp_path / "a").symlink_to(tmp_path / "b")
    with pytest.raises(OSError, match="symbolic links"):
        loading.onto(CPU, dataclasses.replace(load, path=str(tmp_path / "a")))
