"""Keys of tasks that somebody deletes, or that Redis evicts: others go on, and what is lost is told (B37, B55)."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from acceptance.conftest import ended, owner, running
from audit import audit
from fleet import Fleet
from ghostless.jobs.client import Client, Filter
from ghostless.jobs.connection import connect
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.errors import CorruptRecord, GhostlessError, TaskNotFound
from ghostless.jobs.messages import Claimed, NothingToClaim
from ghostless.jobs.reads import Damaged
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import Event
from helpers import eventually, expect
from redis import Redis
from scripts.seeding import BY_PERSON, QUEUE, Scene, finish, scene, submission, wish


@pytest.mark.slow
def test_keys_that_are_deleted_under_running_tasks(
    serving: Callable[..., None], client: Client, fleet: Fleet, tmp_path: Path, end: Path
) -> None:
    """Without its record a task is stopped and its worker takes the next; without lease or history it goes on."""
    serving(workers=3)
    redis, keys = client.store.redis, client.store.keys
    ids = [
        client.submit("life.until", {"trace": f"{tmp_path}/{number}", "end": str(end)}).task_id for number in range(3)
    ]
    for number in range(3):
        running(tmp_path / str(number))
    record, lease, history = ids
    bereft = owner(client, fleet, record)
    redis.delete(keys.heartbeat(lease))
    redis.xdel(keys.history, *(entry.id for entry in client.history(history)))
    redis.delete(keys.task(record))
    waiting, following = (client.submit("life.once", {"trace": f"{tmp_path}/once"}).task_id for _ in range(2))
    redis.delete(keys.task(waiting))
    ended(client, following, "SUCCESS")
    assert bereft.poll() is None
    assert running(tmp_path / "once") == [following]
    end.touch()
    for task_id in (lease, history):
        assert ended(client, task_id, "SUCCESS").attempt == 1
    with pytest.raises(CorruptRecord, match="are gone"):
        client.history(history)
    for task_id in (record, waiting):
        with pytest.raises(TaskNotFound):
            client.get(task_id)
        eventually(partial(assert_quarantined, client, task_id))
    eventually(lambda: expect(not [task for task in client.list(Filter()).tasks if isinstance(task, Damaged)]))
    held = int(redis.hlen(keys.quarantine))  # type: ignore[arg-type]
    found = audit(redis, keys, [lease, following], effects=fleet.effects(), quarantined=held)
    about_others = [line for line in found if not any(task_id in line for task_id in (record, waiting, history))]
    assert [line for line in about_others if not line.startswith("h:") and "belongs to no task" not in line] == []


def assert_quarantined(client: Client, task_id: str) -> None:
    """Check that somebody met the lost record and told so."""
    quarantine = client.store.redis.hgetall(client.store.keys.quarantine)
    assert [what for place, what in quarantine.items() if place.endswith(f" {task_id}")]


@pytest.mark.parametrize("seed", range(8))
def test_evicted_keys(redis: Redis, settings: Settings, seed: int) -> None:
    """A third of all keys is gone, as Redis evicts them: all looks answer, what is whole runs, and no loop hangs."""
    stage, client = scene(redis), Client(settings, redis)
    ids = [f"t{number}" for number in range(60)]
    stage.store.submit_many([submission(task_id) for task_id in ids])
    names = sorted(redis.scan_iter())
    redis.delete(*random.Random(seed).sample(names, len(names) // 3))
    whole = {task_id for task_id in ids if redis.exists(stage.keys.task(task_id), stage.keys.params(task_id)) == 2}
    in_reach = whole if redis.exists(stage.keys.rq_queue(QUEUE)) else set[str]()
    ran = set(drained(stage))
    assert in_reach <= ran
    Watchdog(stage.store, "w").sweep_all()
    client.counts()
    client.queue_overview()
    assert len(client.list(limit=500).tasks) <= len(ids)
    for task_id in ids:
        for look in (client.get, client.history, client.explain):
            with suppress(TaskNotFound, CorruptRecord):  # nothing else
                look(task_id)
    quick = replace(settings, beat=0.05, lease=1.5)
    with connect(quick, exact=True) as exact:
        told = {problem.task_id for problem in Doctor(Store(exact, quick), BY_PERSON).audit() if not problem.is_solved}
    # What happened cannot be invented again: of that, and nothing else, the audit still finds a lack.
    left = audit(redis, stage.keys, quarantined=int(redis.hlen(stage.keys.quarantine)))  # type: ignore[arg-type]
    assert [line for line in left if not line.startswith("e: ") or not told & set(line.split())] == []


def drained(stage: Scene) -> Iterator[str]:
    """Claim and end tasks until there is none; yield those that ran."""
    for number in range(2000):
        try:
            reply = stage.store.claim(wish("w", f"{number:04x}"))
            if isinstance(reply, Claimed):
                stage.held = reply.held
                finish(stage, Event.COMPLETE)
                yield reply.held.task_id
            elif reply == NothingToClaim("empty"):
                return
        except GhostlessError:
            continue
    raise AssertionError("the queue has no end")
