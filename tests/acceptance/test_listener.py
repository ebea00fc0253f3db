"""Listeners as processes that hang, crash and are killed, on a Redis that comes and goes."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet import Fleet
from ghostless.jobs.client import Client
from ghostless.jobs.groups import GroupStatus
from ghostless.statemachine import State
from helpers import eventually, expect
from receiver import receiving
from redis_server import RedisServer
from scripts.seeding import put, scene, submission

from .conftest import assert_clean, assert_gone

pytestmark = pytest.mark.slow

ACT = "listener:act"

Process = subprocess.Popen[bytes]
Start = Callable[..., Process]


@pytest.fixture
def listener(fleet: Fleet, client: Client, tmp_path: Path) -> Iterator[Start]:
    """Start a listener, and return when it listens; in the end it is killed, which is quicker than to stop it."""
    fleet.environment |= {"REACTIONS": str(tmp_path), "GHOSTLESS_DRAIN": "5"}
    started: list[Process] = []

    def start(*options: str) -> Process:
        started.append(fleet.start("listener", "--handlers", "reactions", *options))
        eventually(lambda: expect(started[-1].pid in listening(client)), seconds=20)
        return started[-1]

    yield start
    for process in started:
        process.kill()


def listening(client: Client) -> list[int]:
    """Return the pids of the listeners that are alive, or were a moment ago."""
    return [int(name.split("-")[-2]) for name in statuses(client)[ACT].listeners]


def statuses(client: Client) -> dict[str, GroupStatus]:
    """Return how each group stands."""
    found = {status.name: status for status in client.listeners.all()}
    return {ACT: GroupStatus(ACT, (), 0, 0, 0, 0, 0, 0), **found}


def submit(client: Client, *owners: str) -> list[str]:
    """Submit a task for each owner; return their ids."""
    ids = [f"{owner or 'nobody'}-{time.monotonic_ns()}" for owner in owners]
    for task_id, owner in zip(ids, owners, strict=True):
        client.store.submit(submission(task_id, owner=owner))
    return ids


def noted(folder: Path, name: str) -> list[list[str]]:
    """Return what handlers wrote down: task, event, their pid, that of their listener, the time."""
    file = folder / name
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def tasks(folder: Path, name: str) -> list[str]:
    """Return the tasks for which a handler wrote something down, in order."""
    return [row[0] for row in noted(folder, name)]


def eventually_done(folder: Path, ids: list[str], name: str = "done", seconds: float = 30.0) -> None:
    """Wait until handlers are done with these tasks."""
    eventually(lambda: expect(set(ids) <= set(tasks(folder, name))), seconds)


def eventually_idle(client: Client) -> None:
    """Wait until nothing is unread or handed out."""
    eventually(lambda: expect(all(status.pending == 0 for status in statuses(client).values())))
    assert all(status.behind == 0 for status in statuses(client).values())


def test_what_happens_while_no_listener_runs_is_not_lost(
    listener: Start, client: Client, fleet: Fleet, tmp_path: Path
) -> None:
    """A handler begins with its first listener, is called once for each entry in order, and misses none.

    Another group gets all of them too, and what was before when it is told to.
    """
    fleet.environment |= {"GHOSTLESS_LEASE": "600"}  # so that nothing is taken over
    before = submit(client, "")
    first = listener()
    ids = submit(client, "", "", "")
    eventually_done(tmp_path, ids)
    first.terminate()
    assert first.wait(timeout=10) == 0
    ids += submit(client, "", "")
    listener()
    eventually_done(tmp_path, ids)
    eventually_idle(client)
    assert ids == tasks(tmp_path, "done")
    fleet.start("listener", "--handlers", "reactions", "--group", "audit", "--from-start")
    eventually_done(tmp_path, before)
    eventually(lambda: expect(tasks(tmp_path, "done") == [*ids, *before, *ids]), seconds=20)
    assert_clean(client, fleet, *before, *ids)


def test_a_listener_that_is_killed(listener: Start, client: Client, fleet: Fleet, tmp_path: Path) -> None:
    """Two share the work; when one is killed in a handler, the other does that again, within a lease, and the rest."""
    first, second = listener(), listener()
    ids = submit(client, *["slow"] * 6)
    eventually(
        lambda: expect({row[3] for row in noted(tmp_path, "begun")} == {str(first.pid), str(second.pid)}), seconds=20
    )
    handler = next(int(row[2]) for row in noted(tmp_path, "begun") if row[3] == str(first.pid))
    first.kill()
    eventually(lambda: assert_gone(handler))
    eventually_done(tmp_path, ids)
    eventually_idle(client)
    begun = tasks(tmp_path, "begun")
    assert len(begun) - len(ids) <= 2, "again only what was being done"
    assert_clean(client, fleet, *ids)


def test_a_listener_that_is_stopped(listener: Start, client: Client, fleet: Fleet, tmp_path: Path) -> None:
    """SIGTERM lets the handler end; what was not begun is the next listener's at once; a Ctrl-C is the same."""
    fleet.environment |= {"GHOSTLESS_LEASE": "600"}  # so that nothing is taken over
    first = listener()
    ids = submit(client, *["slow"] * 4)
    eventually(lambda: expect(noted(tmp_path, "begun")), seconds=20)
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=10) == 0
    done = tasks(tmp_path, "done")
    assert done == tasks(tmp_path, "begun") == ids[: len(done)]
    second = listener()
    eventually_done(tmp_path, ids)
    assert ids == tasks(tmp_path, "done")
    second.send_signal(signal.SIGINT)
    assert second.wait(timeout=10) == 0
    assert second.pid not in listening(client), "who leaves and holds nothing leaves no trace"
    assert_clean(client, fleet, *ids)


def test_a_listener_that_was_frozen(listener: Start, client: Client, fleet: Fleet, tmp_path: Path) -> None:
    """What it held is done by another after a lease; when it comes back it goes on, and takes nothing back."""
    first = listener()
    ids = submit(client, *["slow"] * 3)
    eventually(lambda: expect(noted(tmp_path, "begun")), seconds=20)
    first.send_signal(signal.SIGSTOP)
    listener()
    eventually_done(tmp_path, ids)
    first.send_signal(signal.SIGCONT)
    more = submit(client, "", "")
    eventually_done(tmp_path, more)
    eventually_idle(client)
    assert first.poll() is None
    assert all(tasks(tmp_path, "done").count(task_id) <= 2 for task_id in ids)
    assert_clean(client, fleet, *ids, *more)


POISONS = {
    "raises": "cannot be",
    "hangs": "too long",
    "crashes": "SIGSEGV",
    "exits": "SystemExit: 3",
    "forks": "cannot be",
    "abandons": "exit code 3",
    "later": "not yet",
}
"""What a handler does, and what is said of it."""


def test_handlers_that_never_succeed(listener: Start, client: Client, fleet: Fleet, tmp_path: Path) -> None:
    """Each entry is parked after all tries, with its error; the others have their turn, and nothing is left running."""
    fleet.environment |= {"GHOSTLESS_LEASE": "600"}  # so that no try is taken over
    running = listener("--handlers", "reactions_beside")
    *poisons, good, better = submit(client, *POISONS, "", "")
    ids = [*poisons, good, better]
    eventually_done(tmp_path, ids, "watched", seconds=30)
    assert statuses(client)[ACT].parked < len(POISONS), "another handler did not wait for this one"
    eventually_done(tmp_path, [good, better], seconds=30)
    eventually(lambda: expect(statuses(client)[ACT].parked == len(POISONS)), seconds=40)
    parked = {each.entry.task: each for each in client.listeners.parked(ACT)[0]}
    for task_id, said in zip(poisons, POISONS.values(), strict=True):
        assert ("SUBMIT", 2) == (parked[task_id].entry.event, parked[task_id].begun)
        assert said in parked[task_id].error
        assert tasks(tmp_path, "begun").count(task_id) == 2
    assert_gone(*(int(row[2]) for row in noted(tmp_path, "begun") if row[0].startswith(("hangs", "crashes"))))
    assert_gone(*(int(pid) for [pid] in noted(tmp_path, "abandoned")))
    assert running.poll() is None
    (tmp_path / "mended").touch()
    assert fleet.start("listeners", "replay", ACT, "--all").wait(timeout=30) == 0
    eventually_done(tmp_path, ids, seconds=30)
    eventually_idle(client)
    assert statuses(client)[ACT].parked == 0
    assert_clean(client, fleet, *ids)


def test_an_entry_that_kills_its_listener(listener: Start, client: Client, fleet: Fleet, tmp_path: Path) -> None:
    """As many listeners as it has tries die of it, and the next one parks it; what waited behind it is done."""
    running = listener()
    poison, *good = submit(client, "kills", "", "")
    for _ in range(2):
        running.wait(timeout=15)
        running = listener()
    eventually(lambda: expect(statuses(client)[ACT].parked == 1), seconds=15)
    eventually_done(tmp_path, good)
    assert running.poll() is None
    assert "died" in client.listeners.parked(ACT)[0][0].error
    assert tasks(tmp_path, "begun").count(poison) == 2
    assert_clean(client, fleet, poison, *good)


def test_redis_that_comes_and_goes(
    server: RedisServer, listener: Start, client: Client, fleet: Fleet, tmp_path: Path
) -> None:
    """A restart, a while as a replica, a lost group, a flush: the listener goes on, with what happened meanwhile."""
    running = listener()
    ids = submit(client, "slow")
    eventually(lambda: expect(noted(tmp_path, "begun")), seconds=20)
    server.restart()
    ids += submit(client, "")
    eventually_done(tmp_path, ids)
    client.store.redis.replicaof("127.0.0.1", "1")
    time.sleep(1)  # the fault itself
    client.store.redis.replicaof("NO", "ONE")
    client.store.redis.client_kill_filter(_type="normal", skipme=True)
    ids += submit(client, "")
    eventually_done(tmp_path, ids)
    ids = submit(client, *["slow"] * 3)
    eventually(lambda: expect(ids[0] in tasks(tmp_path, "begun")), seconds=20)
    client.store.redis.xgroup_destroy(client.store.keys.history, ACT)
    eventually_done(tmp_path, ids)
    client.store.redis.flushall()
    later = submit(client, "")
    eventually_done(tmp_path, later)
    eventually_idle(client)
    assert running.poll() is None
    assert_clean(client, fleet, *later)


def test_tasks_that_are_purged_before_a_listener_comes_back(
    listener: Start, client: Client, fleet: Fleet, tmp_path: Path
) -> None:
    """Those it held and those it never saw: it goes on behind them, and shows how many it missed."""
    running = listener()
    held = submit(client, "slow", "slow", "slow")
    eventually(lambda: expect(noted(tmp_path, "begun")), seconds=20)
    running.kill()
    running.wait()
    unseen = submit(client, "", "")
    for task_id in (*held, *unseen):
        client.cancel(task_id)
        client.store.redis.zadd(client.store.keys.retention, {task_id: 0})
    assert client.store.purge().moved == 5
    listener()
    ids = submit(client, "")
    eventually_done(tmp_path, ids)
    eventually(lambda: expect(statuses(client)[ACT].pending == 0))
    missed = statuses(client)[ACT].missed
    assert missed == len([task_id for task_id in held if task_id not in tasks(tmp_path, "done")]) + 2 + 5
    overview = fleet.start("listeners", "--json")
    assert overview.wait(timeout=20) == 0
    shown = json.loads(sorted(tmp_path.glob("*-listeners.log"), key=lambda log: log.stat().st_mtime)[-1].read_text())
    assert [missed] == [group["missed"] for group in shown["listeners"] if group["name"] == ACT]
    assert_clean(client, fleet, *held, *unseen, *ids)


def test_alerts_need_no_handlers(client: Client, fleet: Fleet, server: RedisServer) -> None:
    """A place to send them to is enough; while it does not answer well, the alert is tried again."""
    with receiving() as receiver:
        receiver.answers = [503]
        fleet.environment |= {"GHOSTLESS_ALERT_WEBHOOK": receiver.url}
        fleet.start("listener")
        eventually(lambda: expect("alerts:worker-lost" in statuses(client)), seconds=20)
        stage = scene(client.store.redis)
        held = put(stage, State.PROCESSING)
        client.store.lose(held.task_id, held.attempt, "w1", "pool:p", "worker w1 was ended by SIGKILL", is_dead=True)
        eventually(lambda: expect(len(receiver.bodies) == 2), seconds=25)
        told = "A worker was lost: worker w1 was ended by SIGKILL (worker_lost): task t1 of type demo.add, attempt 1"
        assert [told] * 2 == receiver.texts
        eventually(lambda: expect(all(status.pending == 0 for status in statuses(client).values())))
    assert_clean(client, fleet, held.task_id)
