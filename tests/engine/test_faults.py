"""A store that is wrong, gone, full or hanging: a miss or one clean error, and the engine goes on."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.core import LONG, VERSION, item, publish
from engine.pretended import Script


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _symlink(path: Path) -> None:
    path.rename(path.with_suffix(".other"))
    path.symlink_to(path.with_suffix(".other"))


def _text(path: Path) -> None:
    path.write_text("no safetensors at all")


DAMAGE = [
    (_truncate, "torn"),
    (_empty, "empty"),
    (_flip, "checksum"),
    (_directory, "not_regular"),
    (_symlink, "not_regular"),
    (_text, "header"),
    (Path.unlink, None),
]
WRONG = [({"width": 128}, "width"), ({"dtype": torch.float32}, "dtype")]


def _loads(output: Any) -> list[str]:
    """Identifiers that a step loads."""
    return [load.identifier for load in output.ec_connector_metadata.step.loads]


def _served_without(consumer: Any, reason: str | None) -> None:
    """Ask for `red` with and without pixels, then for something else: a miss, an error, and life goes on."""
    bare = consumer.ask("bare", item("red", 4, 32, pixels=False))
    consumer.run()
    answer = consumer.ask("pixels", item("red", 4, 32))
    consumer.run()
    after = consumer.ask("after", item("blue", 4, 32))
    consumer.run()
    assert (bare.reason, answer.reason, after.reason) == ("error", "length", "length")
    assert (consumer.script.encodes, consumer.script.loads) == (["red", "blue"], [])
    assert consumer.counts.get("rejects") == ({reason: 2} if reason else None)
    assert consumer.counts["local_encodes"] == 2
    consumer.settle()


@pytest.mark.parametrize(("damage", "reason"), DAMAGE)
def test_a_damaged_entry_is_a_miss(start, root, damage: Callable[[Path], None], reason: str | None):
    consumer = start("ec_consumer")
    damage(publish(root, consumer, "red", 32))
    _served_without(consumer, reason)


@pytest.mark.parametrize(("other", "reason"), WRONG)
def test_an_entry_of_another_shape_is_a_miss(start, root, other: dict[str, Any], reason: str):
    consumer = start("ec_consumer")
    publish(root, consumer, "red", 32, **other)
    _served_without(consumer, reason)


def test_an_entry_of_another_version_is_a_miss(start, root):
    consumer = start("ec_consumer")
    foreign = publish(root, consumer, "red", 32, version="v1-tiny-ffffffffffff")
    shutil.copytree(foreign.parent, root / VERSION / foreign.parent.name)
    _served_without(consumer, "version")


def test_the_width_that_encoders_measured_counts_more_than_the_configuration(start, root):
    encoder = start("ec_producer", script=Script(width=768))
    encoder.ask("e", item("red", 4, 32))
    encoder.run()
    encoder.until(lambda: (root / ".epd-gc" / "versions" / f"{VERSION}.widths.json").exists())
    consumer = start("ec_consumer", script=Script(width=768))
    answer = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert (answer.reason, consumer.script.loads) == ("length", ["red"])


def test_an_entry_deleted_between_verdict_and_load_is_still_loaded(start, root):
    script = Script()
    consumer = start("ec_consumer", script=script)
    entry = publish(root, consumer, "red", 32)
    script.before[0] = lambda output: _loads(output) and entry.unlink()
    answer = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert (answer.reason, script.loads, entry.exists()) == ("length", ["red"], False)
    consumer.settle()


@pytest.mark.parametrize("pixels", [True, False])
def test_an_abort_that_overtakes_a_load_takes_nothing_from_it(start, root, pixels):
    script = Script()
    consumer = start("ec_consumer", script=script)
    entry = publish(root, consumer, "red", 32)
    held = []

    def abort(output: Any) -> None:
        if output.num_scheduled_tokens and not held:
            entry.unlink()
            consumer.core.abort_requests(["c"])  # as an abort that is handled while the model runs
            time.sleep(0.01)  # for whoever would release the copy now
            held.append(consumer.side.held)

    script.before[0] = abort
    consumer.ask("c", item("red", 4, 32, pixels=pixels))
    consumer.run()
    other = consumer.ask("d", item("red", 8, 32))
    consumer.run()
    assert (held, other.reason, script.encodes) == ([1], "length", [])
    assert "load_failures" not in consumer.counts
    consumer.settle()


def test_two_ranks_read_at_their_own_time_under_asynchronous_scheduling(start, root):
    gate = threading.Event()
    script = Script(ranks=2, gates={1: gate})
    consumer = start("ec_consumer", script=script, asynchronous=True)
    entry = publish(root, consumer, "red", 32)
    ran: list[str] = []
    script.before[0] = lambda output: ran.extend(_loads(output))
    consumer.ask("c", item("red", 4, 32))
    flying = consumer.core.batch_queue
    consumer.run(until=lambda: any(_loads(output) for _, output, _ in flying))
    consumer.until(lambda: ran == ["red"])
    # The first rank reads, the second has not begun; now the request goes, and so does the entry.
    entry.unlink()
    consumer.core.abort_requests(["c"])
    assert consumer.side.held == 1
    gate.set()
    consumer.run()
    other = consumer.ask("d", item("red", 8, 32))
    consumer.run()
    assert (other.reason, script.encodes) == ("length", [])
    assert "load_failures" not in consumer.counts
    consumer.settle()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_preempted_request_without_pixels_ends_complete_after_its_entry_was_deleted(start, root, asynchronous):
    consumer = start("ec_consumer", asynchronous=asynchronous)
    entry = publish(root, consumer, "red", 32)
    answer = consumer.ask("c", item("red", 4, 32, pixels=False), output=40)
    consumer.run(until=lambda: len(answer.tokens) > 0)
    entry.unlink()
    assert consumer.core.reset_prefix_cache(reset_running_requests=True)  # preempts, as a lack of blocks does
    assert consumer.core.scheduler.requests["c"].num_preemptions == 1
    consumer.core.reset_encoder_cache()
    consumer.run()
    assert (answer.reason, len(answer.tokens)) == ("length", 40)
    assert consumer.script.loads == ["red", "red"]
    consumer.settle()


def test_a_request_preempted_for_lack_of_blocks_ends_complete_after_its_entry_was_deleted(start, root):
    consumer = start("ec_consumer", script=Script(blocks=9), length=112, tokens=112)  # 8 blocks of 16 tokens are vLLM's
    entry = publish(root, consumer, "red", 32)
    hog = consumer.ask("hog", tokens=40, output=60)
    bare = [consumer.ask(name, item("red", 4, 32, pixels=False), tokens=40, output=60) for name in ("a", "b")]
    consumer.run(until=lambda: all(answer.tokens for answer in bare) or any(answer.reason for answer in bare))
    entry.unlink()
    preempted = set[str]()

    def done() -> bool:
        requests = consumer.core.scheduler.requests
        preempted.update(name for name in ("a", "b") if name in requests and requests[name].num_preemptions)
        return not requests

    consumer.run(until=done)
    assert [len(answer.tokens) for answer in (hog, *bare)] == [60, 60, 60]
    assert preempted
    consumer.settle()


def test_a_copy_that_a_worker_cannot_read_fails_its_requests_only(start, root):
    script = Script()
    consumer = start("ec_consumer", script=script)
    publish(root, consumer, "red", 32)
    directory = Path(consumer.connector._shared.copies._directory)

    def lose(output: Any) -> None:
        for load in output.ec_connector_metadata.step.loads:
            Path(load.path).unlink(missing_ok=True)

    script.before[0] = lose
    lost = consumer.ask("c", item("red", 4, 32), output=20)
    other = consumer.ask("d", output=20)
    consumer.run()
    assert (lost.reason, other.reason) == ("error", "length")
    assert consumer.counts["load_failures"] == 1
    consumer.may_be_wrong = list(script.wrong)
    script.before.clear()
    again = consumer.ask("e", item("red", 8, 32))  # the zeros are still in the local cache
    consumer.run()
    assert (again.reason, script.wrong) == ("length", consumer.may_be_wrong)
    assert directory.exists()
    consumer.settle()


class Files:
    """`os`, but calls below `root` hang while `hang` is set, or fail with `error`; says which threads came."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.open_again = threading.Event()
        self.hang = False
        self.error: dict[str, int] = {}
        self.threads: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.threads.add(threading.current_thread().name)
            if self.hang:
                self.open_again.wait()
            if name in self.error:
                raise OSError(self.error[name], os.strerror(self.error[name]))
            return function(*arguments, **options)

        return call


@pytest.fixture
def files(root, delivered, monkeypatch):
    from epd_connector.managed import ManagedECConnector

    seam = Files(root)
    monkeypatch.setattr(ManagedECConnector, "files", seam)
    yield seam
    seam.hang = False
    seam.open_again.set()


def test_the_engines_threads_never_touch_the_store(start, files):
    encoder, consumer = start("ec_producer"), start("ec_consumer")
    for engine in (encoder, consumer):
        engine.ask("a", item("red", 4, 32))
        engine.run()
        engine.ask("b", item("red", 8, 32))
        engine.run()
    assert files.threads
    assert all(name.startswith("epd-ec-") for name in files.threads)


def test_a_hung_store_is_a_miss_after_the_deadline_then_at_once_until_it_is_back(start, root, files):
    consumer = start("ec_consumer", extra={"probe_timeout_seconds": 0.2})
    publish(root, consumer, "red", 32)
    consumer.until(lambda: consumer.side._upkeep._task is None or consumer.side._upkeep._task.done)
    files.hang = True
    first = consumer.ask("1", item("red", 4, 32))
    consumer.run()
    assert (first.reason, consumer.script.encodes) == ("length", ["red"])
    assert consumer.counts["rejects"] == {"timeout": 1}
    assert consumer.counts["probe_timeouts"] == 1
    bare = consumer.ask("2", item("blue", 4, 32, pixels=False))
    pixels = consumer.ask("3", item("green", 4, 32))
    consumer.run()
    assert (bare.reason, pixels.reason) == ("error", "length")
    assert consumer.counts["rejects"] == {"timeout": 1, "suspect": 2}
    files.hang = False
    publish(root, consumer, "blue", 32)
    files.open_again.set()
    consumer.until(lambda: not consumer.connector._access.health.suspect)
    after = consumer.ask("4", item("blue", 4, 32, pixels=False))
    consumer.run()
    assert after.reason == "length"
    consumer.settle()


def test_many_requests_on_a_hung_store_take_no_more_threads_than_the_pool(start, root, files):
    consumer = start("ec_consumer", extra={"probe_timeout_seconds": 0.2, "io_threads": 2})
    files.hang = True
    answers = [consumer.ask(f"r{n}", item(f"i{n}", 4, 32)) for n in range(20)]
    consumer.run()
    assert {answer.reason for answer in answers} == {"length"}
    assert sum(thread.name.startswith("epd-ec-lookup") for thread in threading.enumerate()) == 2


def test_an_encoder_on_a_hung_store_answers_and_promises_nothing(start, files):
    encoder = start("ec_producer", extra={"probe_timeout_seconds": 0.2, "write_timeout_seconds": 0.2})
    files.hang = True
    answers = [encoder.ask(f"e{n}", item(f"i{n}", 4, 32)) for n in range(3)]
    encoder.run()
    assert [answer.items for answer in answers] == [{f"i{n}": {"item_indices": [0], "metadata": {}}} for n in range(3)]
    assert sum(encoder.counts["save_failures"].values()) == 3


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "full"),
        (errno.EROFS, "read_only"),
        (errno.EACCES, "unreadable"),
        (errno.ESTALE, "stale"),
        (errno.EIO, "io"),
    ],
)
@pytest.mark.parametrize("call", ["open", "pwrite", "rename"])
def test_an_encoder_that_cannot_write_answers_and_promises_nothing(start, files, number, reason, call):
    encoder = start("ec_producer")
    files.error = {call: number}
    answer = encoder.ask("e", item("red", 4, 32))
    encoder.run()
    assert answer.items == {"red": {"item_indices": [0], "metadata": {}}}
    assert encoder.counts["save_failures"] == {reason: 1}
    assert "saves" not in encoder.counts


def test_an_encoder_writes_again_what_was_deleted_while_it_holds_it(start, root):
    encoder = start("ec_producer")
    encoder.ask("1", item("red", 4, 32))
    encoder.run()
    shutil.rmtree(root / VERSION)
    answer = encoder.ask("2", item("red", 8, 32))
    encoder.run()
    assert answer.items == {"red": {"item_indices": [0], "metadata": {"image_grid_thw": [1, 2, 64]}}}
    assert (encoder.script.encodes, encoder.counts["republished"]) == (["red"], 1)
    consumer = start("ec_consumer")
    served = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert served.reason == "length"


def test_an_encoder_has_no_phantom_entries(start, root):
    encoder = start("ec_producer")
    publish(root, encoder, "red", 32)
    encoder.ask("1", item("red", 4, 32))
    encoder.run()
    assert encoder.script.encodes == ["red"]
    assert encoder.counts["saves"] == 1
    assert encoder.counts.get("saved_bytes", 0) == 0  # the good entry stays


def test_an_entry_above_the_budget_is_pinned(start, root):
    consumer = start("ec_consumer", extra={"local_bytes": 8192})
    entry = publish(root, consumer, "red", 32)
    answer = consumer.ask("c", item("red", 4, 32, pixels=False), output=8)
    consumer.run(until=lambda: len(answer.tokens) > 0)
    assert entry.stat().st_nlink == 2
    consumer.run()
    assert (answer.reason, consumer.script.loads) == ("length", ["red"])
    consumer.ask("d")  # pins go in steps
    consumer.run()
    consumer.until(lambda: entry.stat().st_nlink == 1)


def test_workers_on_other_nodes_get_pins(start, root, monkeypatch, delivered):
    from epd_connector import settings

    monkeypatch.setattr(settings, "remote_workers", lambda config: True)
    script = Script()
    consumer = start("ec_consumer", script=script)
    entry = publish(root, consumer, "red", 32)
    script.before[0] = lambda output: _loads(output) and entry.unlink()
    answer = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert (answer.reason, script.loads) == ("length", ["red"])


def test_a_full_budget_costs_pixels_an_encoding_and_the_rest_a_pin(start, root):
    script = Script(before={0: lambda output: time.sleep(0.005)})  # so that the first request outlives the deadlines
    consumer = start("ec_consumer", script=script, extra={"local_bytes": 16384, "probe_timeout_seconds": 0.2})
    for colour in ("red", "green", "blue"):
        publish(root, consumer, colour, 32)
    first = consumer.ask("1", item("red", 4, 32, pixels=False), output=400)
    consumer.run(until=lambda: len(first.tokens) > 0)
    pixels = consumer.ask("2", item("green", 4, 32))
    consumer.run(until=lambda: pixels.reason is not None)
    assert (consumer.script.encodes, consumer.counts["rejects"]) == (["green"], {"budget_full": 1})
    bare = consumer.ask("3", item("blue", 4, 32, pixels=False))
    consumer.run(until=lambda: bare.reason is not None)
    assert (bare.reason, consumer.counts["budget_full"]) == ("length", 2)
    consumer.core.abort_requests(["1"])
    consumer.run()


def test_a_killed_engines_copies_go_with_the_next_start(start, root):
    consumer = start("ec_consumer")
    directory = Path(consumer.connector._shared.copies._directory)
    assert directory.exists()
    consumer.connector.shutdown()
    consumer.connector.shutdown()
    assert not directory.exists()


def test_two_sizes_under_one_identifier_are_an_error_also_when_the_first_left_the_local_cache(start, root):
    consumer = start("ec_consumer", tokens=64, length=256)
    publish(root, consumer, "red", 32)
    publish(root, consumer, "blue", 50)
    consumer.core.scheduler.encoder_cache_manager.__init__(64)
    items = item("red", 4, 32, pixels=False), item("blue", 70, 50, pixels=False), item("red", 150, 16, pixels=False)
    answer = consumer.ask("c", *items, tokens=200)
    other = consumer.ask("d", item("blue", 4, 50, pixels=False))
    consumer.run()
    assert (answer.reason, other.reason) == ("error", "length")


@pytest.mark.parametrize("damage", [_truncate, _empty, _text])
def test_an_encoder_writes_again_what_a_lost_server_left_torn_while_it_holds_it(start, root, damage):
    encoder = start("ec_producer")
    encoder.ask("1", item("red", 4, 32))
    encoder.run()
    entry = next((root / VERSION).glob("*/*.safetensors"))
    whole = entry.read_bytes()
    damage(entry)
    answer = encoder.ask("2", item("red", 8, 32))
    encoder.run()
    assert answer.items == {"red": {"item_indices": [0], "metadata": {"image_grid_thw": [1, 2, 64]}}}
    assert (encoder.script.encodes, entry.read_bytes()) == (["red"], whole)


def test_an_embedding_of_another_dtype_than_consumers_expect_is_not_promised(start, root, monkeypatch):
    from engine import pretended

    encoder = start("ec_producer")
    monkeypatch.setattr(pretended.Worker, "_embedding", lambda worker, feature: torch.zeros(32, 256))
    answer = encoder.ask("e", item("red", 4, 32))
    encoder.run()
    assert answer.items == {"red": {"item_indices": [0], "metadata": {}}}
    assert encoder.counts["save_failures"] == {"dtype": 1}


def test_a_tensor_of_another_size_that_vllm_kept_is_replaced(start, root):
    consumer = start("ec_consumer")
    publish(root, consumer, "red", 32)
    worker = consumer.core.model_executor.ranks[0]
    worker.cache["red"] = torch.zeros(16, 256)  # its place was given to the other size within one step
    answer = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert (answer.reason, consumer.script.loads) == ("length", ["red"])


def _broken(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


SCHEDULERS = [
    ("ensure", "ensure_cache_available"),
    ("has", "has_cache_item"),
    ("allocated", "update_state_after_alloc"),
    ("plan", "build_connector_meta"),
    ("account", "take_unavailable_requests"),
    ("finished", "request_finished"),
    ("stats", "get_ec_connector_stats"),
]


@pytest.mark.parametrize(("method", "hook"), SCHEDULERS)
def test_a_mistake_of_ours_in_the_scheduler_does_not_end_the_engine(start, monkeypatch, method, hook):
    consumer = start("ec_consumer")
    consumer.may_raise = {hook}
    with monkeypatch.context() as patch:
        patch.setattr(consumer.side, method, _broken)
        answer = consumer.ask("1", item("red", 4, 32))
        consumer.run()
    assert answer.reason == ("error" if method == "ensure" else "length")
    after = consumer.ask("2", item("blue", 4, 32))
    consumer.run()
    assert after.reason == "length"
    assert consumer.counts["errors"].keys() == {hook}


@pytest.mark.parametrize(
    ("method", "hook"),
    [("republish", "start_save_caches"), ("save", "save_caches"), ("settle", "get_finished")],
)
def test_a_mistake_of_ours_in_an_encoders_worker_does_not_end_it(start, monkeypatch, method, hook):
    encoder = start("ec_producer")
    encoder.may_raise = {hook}
    monkeypatch.setattr(encoder.core.model_executor.ranks[0].connector._working, method, _broken)
    answer = encoder.ask("1", item("red", 4, 32))
    encoder.run()
    assert answer.reason == "stop"


def test_a_lookup_that_breaks_is_a_miss(start, monkeypatch):
    consumer = start("ec_consumer")
    monkeypatch.setattr(consumer.connector._access.store, "fetch", _broken)
    answer = consumer.ask("1", item("red", 4, 32))
    consumer.run()
    assert (answer.reason, consumer.counts["rejects"]) == ("length", {"error": 1})


def test_an_entry_that_shared_memory_has_no_room_for_is_pinned_at_once(start, root, monkeypatch, delivered):
    from epd_connector import shared_memory

    monkeypatch.setattr(shared_memory, "room", lambda: 12288)
    consumer = start("ec_consumer", extra={"probe_timeout_seconds": LONG})
    publish(root, consumer, "red", 32)
    answer = consumer.ask("c", item("red", 4, 32, pixels=False))
    consumer.run()
    assert (answer.reason, consumer.script.loads, "budget_full" in consumer.counts) == ("length", ["red"], False)


@pytest.mark.parametrize("damage", [_truncate, _directory])
def test_an_encoder_does_not_take_what_it_cannot_replace_for_its_entry(start, root, files, damage):
    encoder = start("ec_producer")
    damage(publish(root, encoder, "red", 32))
    files.error = {"pwrite": errno.ENOSPC}
    answer = encoder.ask("e", item("red", 4, 32))
    encoder.run()
    assert answer.items == {"red": {"item_indices": [0], "metadata": {}}}
