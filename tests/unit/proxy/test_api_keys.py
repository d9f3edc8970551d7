"""The directory of keys, as the kubelet changes it and as people do."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from epd.proxy import api_keys
from epd.proxy.api_keys import FILE_LIMIT, ApiKeys
from epd.proxy.tenants import Refused
from unit.proxy.mounts import Mount

A, B, C = "sk-aaaaaaaaaaaaaaaa", "sk-bbbbbbbbbbbbbbbb", "sk-cccccccccccccccc"
ALL = (A, B, C)


def owners(keys: ApiKeys) -> list[str | None]:
    return [keys.table.owner(key) for key in ALL]


def test_a_secret_is_followed_through_the_kubelets_links(tmp_path: Path) -> None:
    mount, readings = Mount(tmp_path / "keys", {"acme": A, "beta": f"{B}\n"}), list[bool]()
    keys = ApiKeys(mount.path, on_read=readings.append)
    assert owners(keys) == ["acme", "beta", None]
    assert not keys.refresh()

    mount.write({"acme": f"{A}\n{C}", "gamma": B})
    assert keys.refresh()
    assert owners(keys) == ["acme", "gamma", "acme"]
    mount.write({"acme": C})
    assert keys.refresh()
    assert owners(keys) == [None, None, "acme"]
    assert not keys.refresh()
    assert readings == [True, True, True]


def test_all_files_change_at_once(tmp_path: Path) -> None:
    mount = Mount(tmp_path / "keys", {"acme": A, "beta": B})
    keys = ApiKeys(mount.path, on_read=bool)
    # as the kubelet leaves it for a moment: one tenant has no link yet, and that of another leads nowhere
    Mount(tmp_path / "next", {"acme": C, "gamma": A})
    new = mount.path / "..next"
    (tmp_path / "next" / os.readlink(tmp_path / "next" / "..data")).rename(new)
    (mount.path / "..data_tmp").symlink_to(new.name)
    (mount.path / "..data_tmp").rename(mount.path / "..data")
    assert keys.refresh()
    assert (owners(keys), keys.table.tenants) == (["gamma", None, "acme"], {"acme", "gamma"})


def test_what_is_no_tenants_file_is_passed_over(tmp_path: Path) -> None:
    mount = Mount(tmp_path / "keys", {"acme": A, ".hidden": B})
    (mount.path / "..data" / "directory").mkdir()
    assert owners(ApiKeys(mount.path, on_read=bool)) == ["acme", None, None]


def test_a_directory_of_a_persons_own(tmp_path: Path) -> None:
    (tmp_path / "acme").write_text(A)
    (tmp_path / ".acme.swp").write_text(C)
    keys = ApiKeys(tmp_path, on_read=bool)
    assert owners(keys) == ["acme", None, None]
    (tmp_path / "beta").write_text(B)
    assert keys.refresh()
    assert owners(keys) == ["acme", "beta", None]
    (tmp_path / "acme").write_text(f"{A}\n{C}\n")
    assert keys.refresh()
    assert owners(keys) == ["acme", "beta", "acme"]
    (tmp_path / "new").write_text(B)
    (tmp_path / "new").rename(tmp_path / "acme")
    (tmp_path / "beta").unlink()
    assert keys.refresh()
    assert owners(keys) == [None, "acme", None]
    assert not keys.refresh()


BREAKS: dict[str, Callable[[Path], object]] = {
    "gone": shutil.rmtree,
    "empty of its link": lambda path: (path / "..data").unlink(),
    "with a link to nowhere": lambda path: shutil.rmtree(path / os.readlink(path / "..data")),
    "a file": lambda path: (shutil.rmtree(path), path.write_text(A)),
}


@pytest.mark.parametrize("break_it", BREAKS.values(), ids=BREAKS.keys())
def test_what_cant_be_read_takes_no_key_away(
    break_it: Callable[[Path], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    mount, readings = Mount(tmp_path / "keys", {"acme": A}), list[bool]()
    keys = ApiKeys(mount.path, on_read=readings.append)
    break_it(mount.path)
    caplog.clear()
    assert [keys.refresh() for _ in range(3)] == [False] * 3
    assert owners(keys) == ["acme", None, None]
    # said once, however often it is looked at
    assert readings == [True, False]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "those in force stay" in caplog.text

    if mount.path.is_dir():
        shutil.rmtree(mount.path)
    mount.path.unlink(missing_ok=True)
    Mount(mount.path, {"beta": B})
    assert keys.refresh()
    assert (owners(keys), readings) == ([None, "beta", None], [True, False, True])
    assert "can be read again" in caplog.text


def test_one_file_that_cant_be_read_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "acme").write_text(A)
    keys = ApiKeys(tmp_path, on_read=bool)
    (tmp_path / "beta").symlink_to(tmp_path / "nowhere")
    (tmp_path / "acme").write_text(C + "c")
    assert not keys.refresh()
    assert owners(keys) == ["acme", None, None]


def test_a_directory_that_isnt_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="keys"):
        ApiKeys(tmp_path / "keys", on_read=bool)


def test_a_file_that_is_too_large_is_no_list_of_keys(tmp_path: Path) -> None:
    fits = f"{B}\n".ljust(FILE_LIMIT, "\n")
    mount = Mount(tmp_path / "keys", {"acme": f"{A}\n{fits}", "beta": fits})
    keys = ApiKeys(mount.path, on_read=bool)
    assert owners(keys) == [None, "beta", None]
    assert keys.table.refused == (Refused("acme", 0, f"the file is larger than {FILE_LIMIT} bytes"),)


def test_the_log_tells_what_is_refused_and_never_a_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bad = [f"short-{n}" for n in range(30)]
    mount = Mount(tmp_path / "keys", {"acme": "\n".join([A, *bad]), "beta": f"{B}\n{A}"})
    keys = ApiKeys(mount.path, on_read=bool)
    assert owners(keys) == [None, "beta", None]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 21
    assert warnings[0].endswith("'acme' line 1: the key is one of 'beta' too, so it is nobody's")
    assert warnings[-1].endswith("12 more lines are refused")
    assert not [key for key in (A, B, *bad) if key in caplog.text]


@pytest.mark.parametrize("files", [{}, {"acme": ""}, {"acme": "short"}])
def test_no_key_at_all_is_said(files: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = ApiKeys(Mount(tmp_path / "keys", files).path, on_read=bool)
    assert owners(keys) == [None] * 3
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == [
        f"API keys in {tmp_path / 'keys'}: there is none, so every request is refused"
    ]


async def test_following_goes_on_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(api_keys, "RELOAD_SECONDS", 0.001)
    mount, read = Mount(tmp_path / "keys", {"acme": A}), asyncio.Queue[bool]()
    keys = ApiKeys(mount.path, on_read=read.put_nowait)
    assert await read.get()
    task = asyncio.create_task(keys.follow())
    async with asyncio.timeout(10):
        mount.write({"acme": B})
        while not await read.get():  # the old files may vanish while they are read
            pass
        assert owners(keys) == [None, "acme", None]
        with monkeypatch.context() as defect:
            defect.setattr(api_keys, "_look", None)
            while "looking for changes failed" not in caplog.text:  # noqa: ASYNC110 - there is no Event
                await asyncio.sleep(0.001)
        mount.write({"acme": C})
        while not await read.get():
            pass
    assert owners(keys) == [None, None, "acme"]
    task.cancel()
