"""Several tasks in one real horse: whatever befalls it, its worker or one of them, each keeps what it was promised."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, horse_of
from ghostless.jobs.client import Client
from helpers import eventually, expect
from proxy import Proxy
from redis_server import RedisServer

from .conftest import assert_clean, ended, entry_of, story

pytestmark = pytest.mark.slow

FOR_EVER = 600.0
"""Seconds for which tasks may wait where a test decides how long that is."""


class Scene:
    """A worker, and what its tasks note."""

    def __init__(self, fleet: Fleet, client: Client, name: str, age: float, url: str = "") -> None:
        self.client, self.name = client, name
        self.end = fleet.folder / f"{name}.end"
        self.trace = fleet.folder / f"{name}.trace"
        where = ["--redis-url", url] if url else []
        command = [sys.executable, "-m", "hasty", str(age), *where, "worker", name]
        self.worker = fleet.spawn([*command, "--tasks", "lifecycle", "--name", name])

    def begin(self, *others: Mapping[str, Any]) -> list[str]:
        """Let the worker start tasks together, of which each does as told; return their ids once the first began.

        Its very first task runs alone, since it is not known how long one takes.
        """
        wait_for_types(self.client)
        first = self.submit({})
        ended(self.client, first, "SUCCESS")
        self.trace.unlink()
        self.client.pause_queue(self.name)
        ids = [self.submit(params) for params in others]
        self.client.resume_queue(self.name)
        eventually(lambda: expect(self.begun() > 0), seconds=25)
        expect([1] * len(ids) == [self.client.get(task_id).attempt for task_id in ids])
        return ids

    def submit(self, params: Mapping[str, Any]) -> str:
        """Submit a task to the worker's queue."""
        given = {"trace": str(self.trace), **params}
        return self.client.submit("life.swift", given, queue=self.name).task_id

    @property
    def waits(self) -> Mapping[str, Any]:
        """What lets a task wait for the end that the test decides on."""
        return {"end": str(self.end)}

    def begun(self) -> int:
        """Return how many attempts have begun."""
        return Counter(what for _, what, *_ in notes(self.trace))["begins"]


def wait_for_types(client: Client) -> None:
    """Wait until a worker published its types."""
    eventually(lambda: expect("life.swift" in client.types()), seconds=25)


def notes(trace: Path) -> list[list[str]]:
    """Return what was noted: attempt, what, task, when."""
    return [line.split() for line in trace.read_text().splitlines()] if trace.exists() else []


def assert_one_at_a_time(trace: Path) -> None:
    """Check that no attempt of a task began before the one before it was over, and none twice."""
    seen: dict[str, list[tuple[int, str]]] = {}
    for attempt, what, task_id, _ in notes(trace):
        seen.setdefault(task_id, []).append((int(attempt), what))
    for marks in seen.values():
        assert marks == sorted(set(marks)), marks


def effects(trace: Path) -> dict[str, Sequence[int]]:
    """Return the attempts in which each task came to its end."""
    done: dict[str, list[int]] = {}
    for attempt, what, task_id, _ in notes(trace):
        if what == "ends":
            done.setdefault(task_id, []).append(int(attempt))
    return dict(done)


def serve(fleet: Fleet, *queues: str) -> None:
    """Start a watchdog and a worker that take care of what is left."""
    fleet.watchdog()
    fleet.worker(*queues, name="healthy", tasks="lifecycle")


def assert_unspent(client: Client, *task_ids: str) -> None:
    """Check that these tasks have used no budget."""
    tasks = [client.get(task_id) for task_id in task_ids]
    assert [(0, 0, 0)] * len(tasks) == [(task.failures, task.timeouts, task.losses) for task in tasks]


def test_a_killed_worker_costs_nobody_a_budget(client: Client, fleet: Fleet, server: RedisServer) -> None:
    """Whether the first of a batch runs, one in its middle, or all have ended and Redis does not know yet."""
    proxy = Proxy(server.port)
    first = Scene(fleet, client, "first", FOR_EVER)
    middle = Scene(fleet, client, "middle", FOR_EVER)
    done = Scene(fleet, client, "done", FOR_EVER, proxy.url)
    ids = first.begin(first.waits, {}, {}) + middle.begin({}, middle.waits, {}) + done.begin(done.waits, {}, {})
    eventually(lambda: expect(middle.begun() == 2))
    proxy.mode = "silent"
    done.end.touch()
    eventually(lambda: expect(len(effects(done.trace)) == 3))
    for scene in (first, middle, done):
        scene.worker.kill()
    eventually(lambda: expect(all(scene.worker.poll() is not None for scene in (first, middle, done))))
    first.end.touch()
    middle.end.touch()
    serve(fleet, "first", "middle", "done")
    for task_id in ids:
        assert "attempt 2" == ended(client, task_id, "SUCCESS").result
        assert ["SUBMIT", "START", "TIMEOUT", "RETRY", "RELEASE", "START", "COMPLETE"] == story(client, task_id)
    assert_unspent(client, *ids)
    for scene in (first, middle, done):
        assert_one_at_a_time(scene.trace)
        assert_clean(client, fleet, *ids)
    proxy.close()


def test_a_killed_horse_costs_only_the_one_that_ran(client: Client, fleet: Fleet, server: RedisServer) -> None:
    """What ended before has ended, what was not begun comes back; and a poison one ends by its own budget alone."""
    fleet.environment["GHOSTLESS_LEASE"] = "20"  # far longer than Redis is away
    proxy = Proxy(server.port)
    scene = Scene(fleet, client, "middle", FOR_EVER)
    done = Scene(fleet, client, "done", FOR_EVER, proxy.url)
    fleet.watchdog()
    before, poison, *behind = scene.begin({}, {"kills": True}, {}, {})
    results = done.begin(done.waits, {})
    proxy.mode = "loading"
    done.end.touch()
    eventually(lambda: expect(len(effects(done.trace)) == 2))
    horse_of(done.worker).kill()
    proxy.mode = "pass"
    assert [] == [task_id for task_id in (before, *results) if ended(client, task_id, "SUCCESS").attempt != 1]
    lost = ended(client, poison, "FAILED")
    assert (2, 2) == (lost.attempt, lost.losses)
    for task_id in behind:
        assert 2 == ended(client, task_id, "SUCCESS").attempt
        assert ["SUBMIT", "START", "SUSPEND", "RESUME", "START", "COMPLETE"] == story(client, task_id)
    assert_unspent(client, before, *behind, *results)
    assert_one_at_a_time(scene.trace)
    assert_clean(client, fleet, poison, *behind)
    proxy.close()


def test_a_task_that_is_suddenly_long_holds_nobody(client: Client, fleet: Fleet) -> None:
    """What has ended before it is told, and what waits behind it is run by another worker while it goes on."""
    scene = Scene(fleet, client, "busy", 0.05)
    before, long, *behind = scene.begin({}, scene.waits, {}, {})
    eventually(lambda: expect([2, 2] == [len(story(client, task_id)) - 2 for task_id in behind]))
    assert "SUCCESS" == ended(client, before, "SUCCESS").state
    fleet.worker("busy", name="other", tasks="lifecycle")
    for task_id in behind:
        ended(client, task_id, "SUCCESS")
        assert "worker:other" == entry_of(client, task_id, "COMPLETE").actor
    assert "PROCESSING" == client.get(long).state
    scene.end.touch()
    assert "attempt 1" == ended(client, long, "SUCCESS").result
    assert_unspent(client, before, long, *behind)
    assert_one_at_a_time(scene.trace)
    assert_clean(client, fleet, long, *behind)


def test_a_worker_that_is_to_stop_gives_back_what_is_not_begun(client: Client, fleet: Fleet) -> None:
    """At once, while the one that runs has its drain; in their order, to the head of their queue."""
    fleet.environment["GHOSTLESS_DRAIN"] = "20"
    scene = Scene(fleet, client, "leaving", FOR_EVER)
    before, slow, *behind = scene.begin({}, scene.waits, {}, {})
    eventually(lambda: expect(scene.begun() == 2))
    last = scene.submit({})
    scene.worker.terminate()
    queue = client.store.keys.rq_queue("leaving")
    eventually(lambda: expect([*behind, last] == client.store.redis.lrange(queue, 0, -1)))
    assert "PROCESSING" == client.get(slow).state
    scene.end.touch()
    assert 0 == scene.worker.wait(timeout=20)
    assert ["SUCCESS", "SUCCESS"] == [client.get(task_id).state for task_id in (before, slow)]
    serve(fleet, "leaving")
    for task_id in behind:
        assert 2 == ended(client, task_id, "SUCCESS").attempt
    assert_unspent(client, slow, *behind)
    assert_clean(client, fleet, slow, *behind)


def test_what_a_person_asks_of_one_that_waits_is_heard(client: Client, fleet: Fleet) -> None:
    """Given back before its time comes, it is cancelled or paused; once it has come the table says what it is."""
    given, run = Scene(fleet, client, "given", 1.0), Scene(fleet, client, "run", FOR_EVER)
    ids = [scene.begin(scene.waits, {}, {}, {}) for scene in (run, given)]
    for _, cancelled, paused, _ in ids:
        client.cancel(cancelled)
        client.pause(paused)
    (_, cancelled, paused, other) = ids[1]
    assert "CANCELLED" == ended(client, cancelled, "CANCELLED").state
    assert "PAUSED" == ended(client, paused, "PAUSED").state
    assert "PENDING" == ended(client, other, "PENDING").state
    assert 1 == given.begun(), "none of them has begun"
    run.end.touch()
    given.end.touch()
    (_, cancelled, paused, other) = ids[0]
    assert "CANCELLED" == ended(client, cancelled, "CANCELLED", "SUCCESS").state
    assert ended(client, paused, "PAUSED", "SUCCESS")
    for _, _, paused, other in ids:
        if client.get(paused).state == "PAUSED":
            client.resume(paused)
        assert [ended(client, task_id, "SUCCESS").state for task_id in (paused, other)]
        assert_unspent(client, paused, other)
    for scene, members in zip((run, given), ids, strict=True):
        assert_one_at_a_time(scene.trace)
        assert_clean(client, fleet, *members)


def test_a_frozen_worker_and_its_horse_begin_nothing_late(client: Client, fleet: Fleet) -> None:
    """Both stand still for longer than the lease: others run the tasks, and neither begins or writes one afterwards."""
    scene = Scene(fleet, client, "frozen", FOR_EVER)
    ids = scene.begin(scene.waits, {}, {})
    horse = horse_of(scene.worker)
    frozen = [scene.worker.pid, horse.pid]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    serve(fleet, "frozen")
    eventually(lambda: expect("2" in [attempt for attempt, *_ in notes(scene.trace)]), seconds=25)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: expect(not horse.is_running()))
    scene.end.touch()
    for task_id in ids:
        assert "attempt 2" == ended(client, task_id, "SUCCESS").result
        assert ["SUBMIT", "START", "TIMEOUT", "RETRY", "RELEASE", "START", "COMPLETE"] == story(client, task_id)
    assert [["1", ids[0]]] == [[attempt, task_id] for attempt, _, task_id, _ in notes(scene.trace) if attempt == "1"]
    assert_unspent(client, *ids)
    assert_one_at_a_time(scene.trace)
    assert_clean(client, fleet, *ids)


def test_each_line_is_kept_with_the_task_that_printed_it(client: Client, fleet: Fleet) -> None:
    """And a failure ends the batch, but no other task: what is behind runs here, as what it was started for."""
    scene = Scene(fleet, client, "talks", FOR_EVER)
    says = [{"says": f"I am {number}"} for number in range(4)]
    ids = scene.begin({}, *says, {"fails": True}, {})
    *talkers, failing, last = ids[1:]
    for number, task_id in enumerate(talkers):
        ended(client, task_id, "SUCCESS")
        eventually(partial(assert_log, client, task_id, [f"I am {number}"]))
    ended(client, failing, "RETRY_WAITING", "FAILED")
    assert 1 == ended(client, last, "SUCCESS").attempt
    assert_log(client, ids[0], [])
    assert_log(client, last, [])
    client.cancel(failing)
    assert_one_at_a_time(scene.trace)
    assert_clean(client, fleet, *ids)


def assert_log(client: Client, task_id: str, lines: list[str]) -> None:
    """Check what is kept of a task's output."""
    assert lines == client.reads.log(task_id)
