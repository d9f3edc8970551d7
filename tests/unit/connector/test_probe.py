from __future__ import annotations

import threading
import weakref

from epd.connector.probe import Health, Pool, Task, progressed

LONG = 30.0


def test_a_task_gives_its_outcome_or_its_error():
    pool = Pool("t", 2)
    good, bad = pool.submit(lambda: 7), pool.submit(lambda: 1 // 0)
    assert good.wait(LONG)
    assert bad.wait(LONG)
    assert (good.outcome, good.error, bad.outcome, type(bad.error)) == (7, None, None, ZeroDivisionError)
    pool.close(LONG)


def test_no_more_threads_than_allowed_however_many_hang():
    gate = threading.Event()
    pool = Pool("bounded", 2)
    tasks = [pool.submit(gate.wait) for _ in range(10)]
    assert [task.started is not None for task in tasks[2:]] == [False] * 8
    assert sum(thread.name.startswith("bounded") for thread in threading.enumerate()) == 2
    gate.set()
    assert all(task.wait(LONG) for task in tasks)
    pool.close(LONG)
    assert sum(thread.name.startswith("bounded") for thread in threading.enumerate()) == 0


def test_what_an_abandoned_call_found_is_disposed_of_when_it_ends():
    gate, began, disposed = threading.Event(), threading.Event(), []

    def find() -> str:
        began.set()
        gate.wait()
        return "copy"

    pool = Pool("t", 1)
    task = pool.submit(find, dispose=disposed.append)
    assert began.wait(LONG)
    task.abandon()
    assert disposed == []
    gate.set()
    pool.close(LONG)
    assert disposed == ["copy"]


def test_what_a_call_found_before_it_was_abandoned_is_disposed_of_once():
    disposed = []
    task = Task(lambda: "copy", disposed.append, lambda: 0.0)
    task.run()
    task.abandon()
    task.abandon()
    assert disposed == ["copy"]


def test_a_call_abandoned_while_it_waits_for_a_thread_is_never_made():
    made = []
    task = Task(lambda: made.append(1), None, lambda: 0.0)
    task.abandon()
    task.run()
    assert (made, task.done) == ([], True)


def test_only_a_call_that_runs_is_overdue():
    now = [10.0]
    gate, began = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        gate.wait()

    pool = Pool("t", 1, lambda: now[0])
    running, queued = pool.submit(hang), pool.submit(lambda: None)
    assert began.wait(LONG)
    assert (running.overdue(15.1, 5), running.overdue(14.9, 5), queued.overdue(99, 5)) == (True, False, False)
    gate.set()
    pool.close(LONG)
    assert running.overdue(99, 5) is False


def test_a_call_that_goes_on_is_not_overdue():
    now = [10.0]
    goes, gate, began, went = (threading.Event() for _ in range(4))

    def read() -> None:
        began.set()
        goes.wait()
        progressed()
        went.set()
        gate.wait()

    pool = Pool("t", 1, lambda: now[0])
    task = pool.submit(read)
    assert began.wait(LONG)
    now[0] = 14.0
    goes.set()
    assert went.wait(LONG)
    assert (task.started, task.overdue(18.0, 5), task.overdue(19.1, 5)) == (10.0, False, True)
    gate.set()
    pool.close(LONG)
    progressed()  # in a thread that runs no task


def test_a_closed_pool_takes_nothing_more():
    pool = Pool("t", 1)
    pool.close(LONG)
    pool.close(LONG)
    assert pool.submit(lambda: 1).wait(0) is False


def test_an_abandoned_call_keeps_nothing_while_it_waits_for_a_thread():
    class Embedding:
        pass

    embedding = Embedding()
    gone = weakref.ref(embedding)
    task = Task(lambda embedding=embedding: embedding, None, lambda: 0.0)
    del embedding
    task.abandon()
    assert gone() is None


def test_where_no_thread_can_be_started_a_call_is_never_made(monkeypatch):
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = Pool("t", 2)
    health = Health(pool, lambda: None, deadline=5.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        task = pool.submit(lambda: 7)
        health.doubt()
    assert (task.wait(0), health.suspect) == (False, False)
    assert pool.submit(lambda: 8).wait(LONG)
    assert task.outcome == 7
    pool.close(LONG)


def _health(question, now, deadline=5.0, pool=None):
    return Health(pool or Pool("q", 1), question, deadline=deadline, pause=0.001, clock=lambda: now[0])


def test_doubt_lasts_while_all_threads_hang_though_the_store_answers_questions():
    gate, pool = threading.Event(), Pool("t", 1)
    hung = pool.submit(gate.wait)
    health = _health(lambda: None, [0.0], pool=pool)
    health.doubt()
    assert not hung.wait(0.01)
    assert health.suspect
    gate.set()
    while health.suspect:
        pass
    pool.close(LONG)


def test_doubt_is_passing_for_a_second():
    gate, now = threading.Event(), [10.0]
    health = _health(gate.wait, now)
    assert not health.lasting(99.0)
    health.doubt()
    assert (health.lasting(10.9), health.lasting(11.1)) == (False, True)
    gate.set()
    while health.suspect:
        pass
    assert not health.lasting(99.0)


def test_doubt_lasts_until_a_question_is_answered():
    gate = threading.Event()
    health = _health(gate.wait, [0.0])
    health.doubt()
    health.doubt()
    assert health.suspect
    assert sum(thread.name == "epd-ec-recovery" for thread in threading.enumerate()) == 1
    gate.set()
    while health.suspect:
        pass
    health.close(LONG)


def test_an_answer_that_came_late_is_asked_for_again():
    now, asked = [0.0], []

    def question() -> None:
        asked.append(now[0])
        now[0] += 10 if len(asked) < 3 else 1

    health = _health(question, now)
    health.doubt()
    while health.suspect:
        pass
    assert asked == [0.0, 10.0, 20.0]


def test_an_error_is_an_answer():
    health = _health(lambda: 1 // 0, [0.0])
    health.doubt()
    while health.suspect:
        pass


def test_after_close_there_is_no_doubt():
    health = _health(lambda: None, [0.0])
    health.close(LONG)
    health.doubt()
    assert not health.suspect
