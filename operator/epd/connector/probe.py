"""Calls that may hang with a volume, kept off the engine's threads: bounded pools, tasks with a deadline, and doubt.

A thread stuck in the kernel cannot be ended. So a pool never makes another in its place, nobody waits for one longer
than a deadline, and while the store is in doubt nothing is asked of it but whether it is back. Knows no file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_RECOVERY_PAUSE_SECONDS: Final = 1.0
"""Between questions whether the store is back: soon enough for a server that restarts, rare enough to be no load."""
_LASTING_SECONDS: Final = 1.0
"""After it doubt is no passing one: a store with a single slow file answers another question within milliseconds."""


_running = threading.local()


def progressed() -> None:
    """Note that the task this thread runs, if any, is alive: a step of it has ended."""
    task: Task[object] | None = getattr(_running, "task", None)
    if task is not None:
        task.progressed()


class Task(Generic[T]):
    """One call in a pool. `outcome` and `error` may be read once `done`.

    Made in the scheduler's thread, so of bare locks, which take a tenth of the time that an Event takes to make.
    """

    __slots__ = (
        "_abandoned",
        "_call",
        "_clock",
        "_dispose",
        "_lock",
        "_running",
        "_seen",
        "done",
        "error",
        "outcome",
        "started",
    )

    def __init__(
        self, call: Callable[[], T], dispose: Callable[[T], object] | None, clock: Callable[[], float]
    ) -> None:
        self._call: Callable[[], T] | None = call
        self._dispose = dispose
        self._clock = clock
        self._lock = threading.Lock()
        self._running = threading.Lock()
        """Held from the start to the end of the task: who gets it has waited for the end."""
        self._running.acquire()
        self._abandoned = False
        self.done = False
        """Whether the call has ended."""
        self.started: float | None = None
        self._seen = 0.0
        self.outcome: T | None = None
        self.error: BaseException | None = None

    def wait(self, seconds: float) -> bool:
        """Wait for the end at most this long; tell whether it came."""
        if not self.done and self._running.acquire(timeout=max(seconds, 0)):
            self._running.release()  # for the next who waits
        return self.done

    def overdue(self, now: float, seconds: float) -> bool:
        """Tell whether the call runs without progress for longer than this.

        One that only waits for a thread accuses no store, nor does one whose entry is large.
        """
        return self.started is not None and not self.done and now - self._seen > seconds

    def progressed(self) -> None:
        """Note that the call is alive."""
        self._seen = self._clock()

    def abandon(self) -> None:
        """Take no interest in the outcome any more: it is disposed of, now or when the call ends."""
        with self._lock:
            first, self._abandoned = not self._abandoned, True
            ended, self._call = self.done, None  # what it would have used goes now, not when a thread is free
        if first and ended:
            self._dispose_of_outcome()

    def run(self) -> None:
        """Make the call, in a thread of the pool; skipped if it was abandoned while it waited."""
        with self._lock:
            call, self._call = self._call, None
            if call is None or self._abandoned:
                self._end()
                return
            self.started = self._seen = self._clock()
        _running.task = self
        try:
            self.outcome = call()
        except BaseException as error:  # whatever it is, a thread of the pool outlives it
            self.error = error
        _running.task = None
        with self._lock:
            self._end()
            abandoned = self._abandoned
        if abandoned:
            self._dispose_of_outcome()

    def _end(self) -> None:
        if not self.done:
            self.done = True
            self._running.release()

    def _dispose_of_outcome(self) -> None:
        if self._dispose is not None and self.error is None and self.outcome is not None:
            self._dispose(self.outcome)


class Pool:
    """At most `threads` threads, started when they are needed, that end with the process."""

    def __init__(self, name: str, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._limit = threads
        self._clock = clock
        self._queue: SimpleQueue[Task[object] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, call: Callable[[], T], *, dispose: Callable[[T], object] | None = None) -> Task[T]:
        """Have a thread make the call. After `close` the task never ends by itself."""
        task = Task(call, dispose, self._clock)
        with self._lock:
            if self._closed:
                return task
            self._queue.put(task)  # type: ignore[arg-type]  # only run() is used, whatever the outcome's type
            if self._idle < self._queue.qsize() and len(self._threads) < self._limit:
                thread = _started(self._work, f"{self._name}-{len(self._threads)}")
                self._threads += [thread] if thread else []
        return task

    def close(self, seconds: float) -> None:
        """Let the threads end; wait for them this long together. May be repeated."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
        for _ in threads:
            self._queue.put(None)
        until = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0))

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            task = self._queue.get()
            with self._lock:
                self._idle -= 1
            if task is None:
                return
            task.run()
            del task  # its outcome may hold memory


class Health:
    """Whether the store answers. In doubt after a call that hung, until a question of its own is answered in time."""

    def __init__(
        self,
        pool: Pool,
        question: Callable[[], object],
        *,
        deadline: float,
        pause: float = _RECOVERY_PAUSE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`question` must reach the server, past every cache of the client. It may raise: an error is an answer.

        It is asked in the pool whose calls are in doubt: once all threads of that hang, doubt lasts until one is back,
        also if the server answers everything else.
        """
        self._pool = pool
        self._question = question
        self._deadline = deadline
        self._pause = pause
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._asker: threading.Thread | None = None
        self._since = 0.0
        self.suspect = False

    def lasting(self, now: float) -> bool:
        """Tell whether the store is in doubt for so long that it will hardly answer soon."""
        return self.suspect and now - self._since > _LASTING_SECONDS

    def doubt(self) -> None:
        """Say that a call hung."""
        with self._lock:
            if self.suspect or self._closed.is_set():
                return
            self._since = self._clock()
            self._asker = _started(self._ask, "epd-ec-recovery")
            self.suspect = self._asker is not None

    def close(self, seconds: float) -> None:
        """Ask no more. May be repeated."""
        self._closed.set()
        with self._lock:
            asker = self._asker
        if asker is not None:
            asker.join(max(seconds, 0))

    def _ask(self) -> None:
        while not self._closed.is_set():
            began = self._clock()
            asked = self._pool.submit(self._question)
            while not asked.wait(self._pause) and not self._closed.is_set():
                pass
            if asked.done and self._clock() - began <= self._deadline:
                with self._lock:
                    self.suspect = False
                return
            self._closed.wait(self._pause)


def _started(target: Callable[[], None], name: str) -> threading.Thread | None:
    """Start a thread that ends with the process; None where there can be no more (a limit of the pod, or its end)."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread
