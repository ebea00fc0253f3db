"""Keys of tasks that somebody deletes, or that Redis evicts: others go on, and what is lost is told (B37, B55)."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from acceptance.conftest import ended, owner, running
from audit import audit
from fleet import Fleet
from ghostless.jobs.client import Client, Filter
from ghostless.jobs.errors import CorruptRecord, GhostlessError, TaskNotFound
from ghostless.jobs.messages import Claimed, NothingToClaim
from ghostless.jobs.reads import Damaged
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import Event
from helpers import eventually
from redis import Redis
from scripts.seeding import QUEUE, Scene, finish, scene, submission, wish


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
    assert {record, waiting} == {task.id for task in client.list(Filter()).tasks if isinstance(task, Damaged)}
    found = audit(redis, keys, [lease, following], quarantined=int(redis.hlen(keys.quarantine)))  # type: ignore[arg-type]
    about_others = [line for line in found if not any(task_id in line for task_id in (record, waiting, history))]
    assert [line for line in about_others if not line.startswith("h:") and "belongs to no task" not in line] == []


def assert_quarantined(client: Client, task_id: str) -> None:
    """Check that somebody met the lost record and told so."""
    quarantine = client.store.redis.hgetall(client.store.keys.quarantine)
    assert [what for place, what in quarantine.items() if place.endswith(f" {task_id}")]


@pytest.fixture
def evicting(redis: Redis) -> Scene:
    """Five hundred waiting tasks in a Redis that then evicted a third of its data at random."""
    stage = scene(redis)
    stage.store.submit_many([submission(f"t{number}", params_json=f'{{"a":"{"x" * 500}"}}') for number in range(500)])
    used = redis.info("memory")["used_memory"]
    empty = redis.info("memory")["used_memory_startup"]
    redis.config_set("maxmemory-policy", "allkeys-random")
    redis.config_set("maxmemory", round(empty + (used - empty) * 0.67))
    redis.set("somebody", "x" * 1000)
    redis.config_set("maxmemory", 0)
    redis.config_set("maxmemory-policy", "noeviction")
    redis.delete("somebody")
    return stage


def test_evicted_keys(evicting: Scene, client: Client) -> None:
    """Whatever is gone, listings and counts answer, what is whole runs, and no loop is held up by what is not."""
    stage = evicting
    assert stage.redis.info("stats")["evicted_keys"] > 50
    watchdog = Watchdog(stage.store, "w")
    ran = set(drained(stage))
    for _ in range(3):
        watchdog.sweep_all()
    ran |= set(drained(stage))
    client.counts()
    client.queue_overview()
    cursor, seen = None, 0
    while True:
        page = client.list(limit=500, cursor=cursor)
        seen, cursor = seen + len(page.tasks), page.cursor
        if cursor is None:
            break
    for number in range(500):
        with_trouble_told(lambda number=number: client.get(f"t{number}"))
        with_trouble_told(lambda number=number: client.history(f"t{number}"))
    assert {task_id for task_id in ran if stage.redis.exists(stage.keys.task(task_id))}
    assert not stage.redis.llen(stage.keys.rq_queue(QUEUE))


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


def with_trouble_told(call: Callable[[], object]) -> None:
    """Make a call that may fail, but only by an error that says what is wrong with the data."""
    try:
        call()
    except (TaskNotFound, CorruptRecord):
        return
