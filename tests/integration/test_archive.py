"""The archivist, its verbs and what is told of an archived task: nothing is purged that is not in the archive."""

import gzip
import json
import logging
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit import audit
from click.testing import CliRunner, Result
from flask.testing import FlaskClient
from ghostless.jobs import archive_file, whole
from ghostless.jobs import archivist as archivist_module
from ghostless.jobs.archive_file import find_archived
from ghostless.jobs.archivist import Archivist
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.errors import ArchiveUnusable, CorruptRecord, NotArchived, TaskNotFound
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.watchdog import Watchdog
from ghostless.lua import BATCH
from ghostless.statemachine import Event
from redis import Redis
from redis.connection import UnixDomainSocketConnection
from redis_server import RedisServer
from web_tools import Hand, end_retention, publish, submitted


@pytest.fixture(autouse=True)
def published(store: Store) -> None:
    """A type to submit."""
    publish(store)


@pytest.fixture
def archivist(store: Store, tmp_path: Path) -> Archivist:
    """One that archives to the test's folder."""
    return Archivist(store, tmp_path)


@pytest.fixture
def ended(client: Client, hand: Hand, redis: Redis) -> Callable[..., str]:
    """Run a task to its end, and let its retention be over."""

    def end(event: Event = Event.COMPLETE, **wishes: Any) -> str:
        task_id = submitted(client, **wishes)
        hand.run(event=event, **({"retryable": False} if event is Event.FAIL else {}))
        end_retention(redis, client.store.keys, [task_id])
        return task_id

    return end


def test_a_task_is_archived_whole(client: Client, store: Store, hand: Hand, archivist: Archivist) -> None:
    """Params, metadata, result, error, checkpoint, log and every move, as they were read before; then it is gone."""
    task_id = submitted(client, params={"n": 1}, metadata={"for": "Ännchen"}, owner="ann")
    claimed = hand.start()
    held = claimed.held
    store.checkpoint(held, '{"step": 4}')
    store.log(held, ["one", "two"])
    store.stage(held, "worker:hand", "watermark")
    hand.finish(claimed, Event.FAIL, retryable=False, message="no model")
    task, history = client.get(task_id), client.history(task_id)
    store.redis.zadd(store.keys.retention, {task_id: 0})
    swept = archivist.archive()
    assert (1, 1, ()) == (swept.looked_at, swept.moved, swept.problems)
    found = find_archived(archivist_folder(archivist), task_id)
    assert json.loads(json.dumps(task.to_dict())) == found["task"]
    assert [entry.to_dict() for entry in history] == found["history"]
    assert ({"step": 4}, ["one", "two"], "it broke") == (found["checkpoint"], found["log"], found["task"]["error"])
    assert [] == audit(store.redis, store.keys, [task_id])


def archivist_folder(archivist: Archivist) -> Path:
    """Return where it archives to."""
    return archivist._file.folder


def test_what_is_told_of_an_archived_task(
    client: Client, web: FlaskClient, ended: Callable[..., str], archivist: Archivist, settings: Settings
) -> None:
    """Its end, when it was purged, and in which file it is: to a caller, a browser and a person."""
    task_id = ended(Event.FAIL)
    archivist.archive()
    (path,) = archivist_folder(archivist).iterdir()
    for ask in (client.get, client.history, client.explain, client.retry):
        with pytest.raises(TaskNotFound, match=f"ended in FAILED.*purged at 20.*archived in {path.name}") as caught:
            ask(task_id)
        assert path.name == caught.value.archive
    for route in ("", "/history", "/explain"):
        answer = web.get(f"/api/tasks/{task_id}{route}")
        assert (410, path.name, "FAILED") == (answer.status_code, answer.json["archive"], answer.json["state"])
    assert 410 == web.post(f"/api/tasks/{task_id}/retry").status_code
    for verb in ("history", "status", "explain", "retry"):
        result = run(settings, verb, task_id)
        assert (1, True) == (result.exit_code, path.name in result.stderr)


def run(settings: Settings, *arguments: str) -> Result:
    """Run a verb."""
    return CliRunner().invoke(main, list(arguments), env={"GHOSTLESS_REDIS_URL": settings.redis_url})


def test_a_kill_between_archive_and_purge_archives_twice(
    store: Store, ended: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next archivist writes the task again; at no moment it is nowhere."""
    task_id = ended()
    with monkeypatch.context() as killing:
        killing.setattr(store, "purge", lambda _archived: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Archivist(store, tmp_path).archive()
    assert store.redis.exists(store.keys.task(task_id))
    assert 1 == Archivist(store, tmp_path).archive().moved
    assert {task_id: 2} == Counter(line["id"] for line in archived_lines(tmp_path))
    assert [] == audit(store.redis, store.keys, [task_id])


def test_what_redis_does_not_purge_is_written_once(
    store: Store, ended: Callable[..., str], tmp_path: Path, archivist: Archivist
) -> None:
    """A read-only Redis, a damaged ledger: the next round purges what was archived, and the disk does not fill."""
    task_id = ended()
    store.redis.hset(store.keys.ledger, "archived", "many")
    for _ in range(3):
        with pytest.raises(CorruptRecord):
            archivist.archive()
    store.redis.hdel(store.keys.ledger, "archived")
    assert 1 == archivist.archive().moved
    assert [task_id] == [line["id"] for line in archived_lines(tmp_path)]


def test_a_member_that_is_no_text_holds_nobody_up(
    store: Store, ended: Callable[..., str], archivist: Archivist, redis_server: RedisServer
) -> None:
    """The archivist cannot name it; any watchdog sets it aside, beside one that archives."""
    task_id = ended()
    with Redis(unix_socket_path=str(redis_server.socket)) as raw:
        raw.zadd(store.keys.retention, {b"\xff%d" % number: -1 for number in range(BATCH)})
    assert 0 == archivist.archive().moved
    swept = store.purge()
    assert (0, 0, BATCH) == (swept.looked_at, swept.moved, len(swept.problems) - 1)
    assert 1 == archivist.archive().moved
    assert find_archived(archivist_folder(archivist), task_id)


class Killed(BaseException):
    """The process is no more."""


class Fate:
    """Kills after so many steps: before and after each command to Redis and each sync, and amid each write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        for owner, name in ((UnixDomainSocketConnection, "send_packed_command"), (os, "fsync")):
            monkeypatch.setattr(owner, name, self._around(getattr(owner, name)))
        self._append = archive_file._append
        monkeypatch.setattr(archive_file, "_append", self._torn)

    def step(self) -> None:
        """Pass one step on the way."""
        self.left -= 1
        if self.left == 0:
            raise Killed

    def _around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*arguments: Any, **options: Any) -> Any:
            self.step()
            answer = act(*arguments, **options)
            self.step()
            return answer

        return acted

    def _torn(self, path: Path, member: bytes) -> None:
        try:
            self.step()
        except Killed:
            path.write_bytes(path.read_bytes() + member[: len(member) // 2])
            raise
        self._append(path, member)


def test_a_kill_at_any_step(
    redis: Redis, store: Store, redis_server: RedisServer, ended: Callable[..., str], tmp_path: Path
) -> None:
    """Wherever it dies: each task is in Redis, whole, or in the archive; the next archivist ends the work."""
    steps = 0
    while True:
        steps += 1
        ids, folder = [ended() for _ in range(2)], tmp_path / str(steps)
        folder.mkdir()
        died = dies_after(steps, redis_server, folder)
        assert all(is_kept(store, folder, task_id) for task_id in ids)
        Archivist(store, folder).archive()
        assert all(find_archived(folder, task_id)["task"]["state"] == "SUCCESS" for task_id in ids)
        assert not redis.exists(*(store.keys.task(task_id) for task_id in ids))
        assert [] == audit(redis, store.keys, ids)
        if not died:
            break
    assert steps > 15


def dies_after(steps: int, server: RedisServer, folder: Path) -> bool:
    """Let an archivist with a connection of its own work until its end or its death; tell which."""
    with connect(Settings(redis_url=server.socket_url)) as own, pytest.MonkeyPatch.context() as monkeypatch:
        fate = Fate(monkeypatch)
        fate.left = steps
        try:
            Archivist(Store(own, Settings()), folder).archive()
        except Killed:
            return True
        finally:
            fate.left = 0
    return False


def is_kept(store: Store, folder: Path, task_id: str) -> bool:
    """Tell whether a task is in Redis or in the archive."""
    try:
        return bool(store.redis.exists(store.keys.task(task_id)) or find_archived(folder, task_id))
    except NotArchived:
        return False


def archived_lines(folder: Path) -> list[Any]:
    """Return every line of an archive."""
    texts = [gzip.decompress(path.read_bytes()).decode() for path in folder.iterdir()]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def test_a_task_that_is_retried_meanwhile_lives(
    client: Client, ended: Callable[..., str], archivist: Archivist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the write to the disk and the purge an operator may have come."""
    task_id, other = ended(Event.FAIL), ended(Event.FAIL)
    append = archivist._file.append

    def retry_meanwhile(*arguments: Any) -> str:
        client.retry(task_id)
        return append(*arguments)

    monkeypatch.setattr(archivist._file, "append", retry_meanwhile)
    assert 1 == archivist.archive().moved
    assert "RETRY_WAITING" == client.get(task_id).state
    with pytest.raises(TaskNotFound):
        client.get(other)


def test_damage_is_archived_as_it_is_and_what_cannot_be_read_stays(
    client: Client, store: Store, ended: Callable[..., str], archivist: Archivist
) -> None:
    """A value that is no JSON, a lost entry: archived raw. A value of a wrong type: told, and kept with its task."""
    ids = [ended() for _ in range(6)]
    redis, keys = store.redis, store.keys
    redis.set(keys.result(ids[0]), "{no json")
    redis.xdel(keys.history, client.history(ids[1])[0].id)
    redis.delete(keys.params(ids[2]))
    redis.rpush(keys.params(ids[2]), "a list")
    redis.hset(keys.task(ids[3]), "h2", "no id")
    redis.hset(keys.task(ids[4]), "entries", 0)
    swept = archivist.archive()
    assert 3 == swept.moved
    assert sorted(ids[2:5]) == sorted(task_id for task_id in ids if redis.exists(keys.task(task_id)))
    assert all(any(task_id in problem for problem in swept.problems) for task_id in ids[2:5])
    folder = archivist_folder(archivist)
    assert "{no json" == find_archived(folder, ids[0])["values"]["result"]
    assert "2 of its history entries are there" in find_archived(folder, ids[1])["damaged"]
    assert "SUCCESS" == find_archived(folder, ids[5])["task"]["state"]
    assert (0, 0) == (archivist.archive().looked_at, archivist.archive().moved)  # they are looked at later


def test_a_record_that_is_gone_is_set_aside(store: Store, ended: Callable[..., str], archivist: Archivist) -> None:
    """An index entry without a task keeps nobody from the archive."""
    task_id = ended()
    store.redis.zadd(store.keys.retention, {"nobody": 0})
    swept = archivist.archive()
    assert (1, True) == (swept.moved, "nobody" in swept.problems[0])
    assert store.redis.hlen(store.keys.quarantine)
    assert find_archived(archivist_folder(archivist), task_id)


def test_many_archivists_at_once(
    client: Client, redis: Redis, store: Store, settings: Settings, tmp_path: Path
) -> None:
    """Each task is purged once and in the archive; those that were archived twice are the same."""
    number = BATCH + 10
    ids = [submitted(client) for _ in range(number)]
    for task_id in ids:
        client.cancel(task_id)
    redis.zadd(store.keys.retention, dict.fromkeys(ids, 0))
    several = [Archivist(Store(redis, settings), tmp_path) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        rounds = [list(pool.map(Archivist.archive, several)) for _ in range(2)]
    assert number == sum(swept.moved for swepts in rounds for swept in swepts)
    assert () == tuple(problem for swepts in rounds for swept in swepts for problem in swept.problems)
    assert set(ids) == {line["id"] for line in archived_lines(tmp_path)}
    ledger = client.reads.ledger()
    assert (number, number, number, 0) == tuple(ledger[name] for name in ("submitted", "purged", "archived", "missing"))
    assert [] == audit(redis, store.keys, ids)


def test_what_another_archivist_purges_meanwhile_is_not_archived_in_parts(
    ended: Callable[..., str], store: Store, tmp_path: Path, archivist: Archivist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the record and its history: the other one has the task whole, and nobody is to find less."""
    task_id, entry_ids = ended(), whole._entry_ids

    def purged_meanwhile(found: whole.Whole) -> list[str]:
        with monkeypatch.context() as other:
            other.setattr(whole, "_entry_ids", entry_ids)
            Archivist(store, tmp_path).archive()
        return entry_ids(found)

    monkeypatch.setattr(whole, "_entry_ids", purged_meanwhile)
    swept = archivist.archive()
    assert (0, ()) == (swept.moved, swept.problems)
    assert [task_id] == [line["id"] for line in archived_lines(tmp_path)]
    assert 3 == len(find_archived(tmp_path, task_id)["history"])


def test_a_batch_is_bounded_in_size(
    ended: Callable[..., str], archivist: Archivist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large tasks are archived a few at a time, and the watchdog hears that there are more."""
    monkeypatch.setattr(archivist_module, "ENOUGH", 100)
    monkeypatch.setattr(archivist_module, "AT_ONCE", 2)
    for _ in range(3):
        ended()
    first, second = archivist.archive(), archivist.archive()
    assert ([BATCH, 2], [1, 1]) == ([first.looked_at, first.moved], [second.looked_at, second.moved])


def test_without_its_folder_nothing_is_purged(
    client: Client, store: Store, ended: Callable[..., str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told, again and again; other duties go on, and no other watchdog purges it either."""
    task_id = ended()
    lost = Archivist(store, tmp_path / "unmounted")
    with pytest.raises(ArchiveUnusable):
        lost.archive()
    with caplog.at_level(logging.ERROR):
        assert lost.sweep_all() is False
        assert Watchdog(store).sweep_all() is False
    failed, waits = caplog.messages
    assert failed.startswith("archive: the archive in")
    assert waits.startswith("purge: tasks wait to be archived")
    assert "SUCCESS" == client.get(task_id).state


def test_a_watchdog_with_an_archive_never_purges_by_itself(
    redis: Redis, settings: Settings, ended: Callable[..., str], client: Client, tmp_path: Path
) -> None:
    """Not even before its archivist's first look, or in a database that was emptied: it demands the archive first."""
    task_id = ended()
    watchdog = Watchdog(Store(redis, replace(settings, archive_to=str(tmp_path))))
    assert 0 == watchdog.purge().moved
    assert "SUCCESS" == client.get(task_id).state


# The command line


def test_the_verb_archives_shows_and_lets_go(
    settings: Settings, ended: Callable[..., str], tmp_path: Path, store: Store
) -> None:
    """`archive --to` works off what is due, `archive show` finds it without Redis, `archive off` ends the demand."""
    ids = [ended() for _ in range(3)]
    assert "archived and purged 3 tasks" in run(settings, "archive", "--to", str(tmp_path)).stdout
    nowhere = replace(settings, redis_url="redis://127.0.0.1:1")
    shown = run(nowhere, "archive", "show", ids[1], "--from", str(tmp_path))
    assert ids[1] == json.loads(shown.stdout)["task"]["id"]
    assert store.redis.hexists(store.keys.limits, "archive")
    assert 0 == run(settings, "archive", "off").exit_code
    assert not store.redis.exists(store.keys.limits)


def test_the_verb_refuses_in_one_line(settings: Settings, ended: Callable[..., str], tmp_path: Path) -> None:
    """Without a folder, with one that is not there, for a task that is in no archive."""
    for arguments in (("archive",), ("archive", "show", "t1"), ("archive", "--to", "x", "off")):
        result = run(settings, *arguments)
        assert (2, True) == (result.exit_code, "Error: " in result.stderr), arguments
    ended()
    missing = str(tmp_path / "missing")
    assert f"the archive in {missing} cannot" in run(settings, "archive", "--to", missing).stderr
    shown = run(settings, "archive", "show", "t1", "--from", str(tmp_path))
    assert (1, True) == (shown.exit_code, "no archive in" in shown.stderr)
