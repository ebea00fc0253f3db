"""The verbs about the whole, on a real Redis: counts, queues, workers, types."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.messages import Claim, Claimed
from ghostless.jobs.record import GpuMemory, WorkerRecord
from ghostless.jobs.remote import RemoteWorkers
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.watchdog import Watchdog
from redis import Redis
from web_tools import Hand, publish, submitted

Cli = Callable[..., Result]


@pytest.fixture
def cli(settings: Settings, redis: Redis) -> Cli:
    """Run a verb against an empty database."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), env={"GHOSTLESS_REDIS_URL": settings.redis_url})

    return run


def done(result: Result) -> str:
    """Check that a verb did what was asked, and return what it printed."""
    assert result.exit_code == 0, result.output
    return result.stdout


def told(result: Result) -> Any:
    """Check that a verb did what was asked, and return its JSON."""
    return json.loads(done(result))


def cells(result: Result) -> list[list[str]]:
    """Return the words of each line below the heading."""
    return [line.split() for line in done(result).splitlines()[1:]]


@pytest.fixture
def worker(redis: Redis) -> None:
    """A worker as rq registers one, and one that died without a word."""
    fields = {
        "state": "busy", "queues": "work,gpu", "hostname": "box", "pid": "4711", "version": "3.0.0",
        "last_heartbeat": "2026-11-30T00:00:00.000000Z", "birth": "2026-11-29T23:00:00.000000Z",
    }  # fmt: skip
    redis.hset("rq:worker:hand", mapping=fields)
    redis.sadd("rq:workers", "rq:worker:hand", "rq:worker:gone")


def test_stats_count_every_state(cli: Cli, client: Client, store: Store) -> None:
    """The table has all states; below it stand the ledger, and who watches."""
    publish(store)
    submitted(client)
    submitted(client, delay=60)
    shown = done(cli("stats"))
    counted = dict(line.split() for line in shown.split("\n\n")[0].splitlines()[1:])
    assert ("1", "1", "0") == (counted["PENDING"], counted["SCHEDULED"], counted["FAILED"])
    assert "stale_writes" in shown
    assert "none swept lately; start one: ghostless watchdog" in shown
    Watchdog(store, "w1").sweep_all()
    assert "w1 swept 0." in done(cli("stats"))
    document = told(cli("stats", "--json"))
    assert (1, 2, {"work": 1}) == (document["states"]["PENDING"], document["ledger"]["submitted"], document["pending"])
    assert isinstance(document["watchdog"]["swept_at"], int)


def test_queues_show_what_waits_and_who_serves(cli: Cli, client: Client, store: Store, worker: None) -> None:
    """A queue without a worker is seen at once."""
    publish(store)
    submitted(client)
    submitted(client, queue="lonely")
    assert [
        ["gpu", "running", "0", "hand"],
        ["lonely", "running", "1", "none"],
        ["work", "running", "1", "hand"],
    ] == cells(cli("queues"))
    assert {"name": "work", "state": "running", "pending": 1, "parked": {}, "workers": ["hand"]} in told(
        cli("queues", "list", "--json")
    )["queues"]


def test_queues_show_what_is_parked(cli: Cli, client: Client, store: Store) -> None:
    """Tasks of a type that the workers do not serve are counted by type, and are PENDING all the same."""
    publish(store)
    task_id = submitted(client)
    store.claim(Claim.new("w", ["work"], ["another"]))
    assert [["work", "running", "1", "1", "work", "none"]] == cells(cli("queues"))
    (row,) = told(cli("queues", "list", "--json"))["queues"]
    assert (1, {"work": 1}) == (row["pending"], row["parked"])
    assert "no worker that asked serves its type" in done(cli("explain", task_id))


def test_a_queue_is_paused_and_resumed(cli: Cli, client: Client, store: Store) -> None:
    """While it is paused a task's status says so, and how to go on."""
    publish(store)
    task_id = submitted(client)
    assert "queue work is paused\n" == done(cli("queues", "pause", "work"))
    assert "`ghostless queues resume work`" in done(cli("status", task_id))
    assert {"name": "work", "state": "running"} == told(cli("queues", "resume", "work", "--json"))
    assert [["work", "running", "1", "none"]] == cells(cli("queues"))


def test_a_slip_of_the_keyboard_makes_no_queue(cli: Cli) -> None:
    """What cannot be a queue's name is wrong usage."""
    result = cli("queues", "pause", "a b")
    assert 2 == result.exit_code
    assert "'QUEUE': expected text matching" in result.stderr
    assert "no queue has held a task yet\n" == done(cli("queues"))


def test_workers_show_their_task(cli: Cli, client: Client, store: Store, worker: None) -> None:
    """Name, state, and the task that names it as its worker; a worker whose record is gone is not shown."""
    publish(store)
    task_id = submitted(client)
    Hand(store, "hand").start()
    (line,) = cells(cli("workers"))
    assert ["hand", "busy", task_id] == line[:3]
    assert ["work", "gpu"] == line[-2:]
    (member,) = told(cli("workers", "--json"))["workers"]
    assert (["work", "gpu"], [task_id], 4711) == (member["queues"], member["tasks"], member["pid"])
    assert (1_795_996_800_000, 1_795_993_200_000) == (member["heartbeat_at"], member["started_at"])


def test_a_batch_is_one_word_of_a_line(cli: Cli, client: Client, store: Store, redis: Redis, worker: None) -> None:
    """Of tasks that were started together the one that runs is named, and how many more there are."""
    publish(store)
    ids = [submitted(client) for _ in range(4)]
    assert isinstance(store.claim(Claim("hand", ("work",), "aa", ("work",), together=(("work", 4),))), Claimed)
    redis.hset("rq:worker:hand", "ghostless", WorkerRecord(task_id=ids[2], attempt=1).to_json())
    assert f" {ids[2]} and 3 more " in done(cli("workers"))
    (member,) = told(cli("workers", "--json"))["workers"]
    assert sorted(ids) == sorted(member["tasks"])


@pytest.fixture
def told_worker(redis: Redis) -> str:
    """A worker of ours that told of itself a second ago; returns its name."""
    seconds, micros = redis.time()
    now = 1000 * seconds + micros // 1000
    record = WorkerRecord(
        version="0.1.0", beat_at=now - 1_000, lease=60_000, types=("image.generate",), task_id="t1", attempt=2,
        set_aside={"video.cut": "its setup\x1b[31m failed"}, since=now - 90_000, lease_age=300, horse_pid=4712,
        horse_rss=2_100_000_000, gpus=(GpuMemory(6_000_000_000, 24_000_000_000, "3"),), health="10.0.0.5:9000",
        stopping="no progress for 60 s", kill_at=now + 9_500,
    )  # fmt: skip
    redis.sadd("rq:workers", "rq:worker:box-1")
    fields = {"state": "busy", "queues": "gpu", "hostname": "box", "pid": "4711", "ghostless": record.to_json()}
    redis.hset("rq:worker:box-1", mapping=fields)
    return "box-1"


def test_workers_show_what_they_tell_of_themselves(cli: Cli, told_worker: str) -> None:
    """How long at it, how much memory, how full the GPU; and which types are not taken any more."""
    line, refusal = done(cli("workers")).splitlines()[1:]
    assert re.fullmatch(r"box-1 +busy +- +9\d s +1\.\d s +2\.1 GB +3: 25% +gpu", line)
    assert r"box-1 does not take video.cut for a while: its setup\x1b[31m failed" == refusal


def test_one_worker_in_detail(cli: Cli, told_worker: str) -> None:
    """All of its record, readable; --json has the same; an unknown name is told."""
    fields = dict(re.split(r"  +", line, maxsplit=1) for line in done(cli("workers", told_worker)).splitlines())
    assert ("2 of t1, for 90 s", "pid 4712, 2.1 GB of memory") == (fields["attempt"], fields["horse"])
    assert ("6.0 GB of 24.0 GB", "10.0.0.5:9000") == (fields["gpu 3"], fields["health"])
    assert re.fullmatch(r"no progress for 60 s; unless it stops, its process is killed in \d.*", fields["stopping"])
    assert "renewed 0.3 s before the last beat, lasts 60 s" == fields["lease"]
    assert 4712 == told(cli("workers", told_worker, "--json"))["record"]["horse_pid"]
    result = cli("workers", "nobody")
    assert (1, "Error: no worker is registered as 'nobody'; those that are: ghostless workers\n") == (
        result.exit_code,
        result.stderr,
    )


def test_a_silent_worker_is_not_busy(cli: Cli, redis: Redis, told_worker: str) -> None:
    """Its record is older than its lease."""
    record = WorkerRecord(beat_at=1, lease=60_000, task_id="t1")
    redis.hset("rq:worker:box-1", "ghostless", record.to_json())
    assert "silent" == cells(cli("workers"))[0][1]
    assert "silent: no beat for 20" in done(cli("workers", told_worker))
    cli("queues", "resume", "gpu")
    assert [["gpu", "running", "0", "none"]] == cells(cli("queues"))


def test_no_worker_is_told_with_what_to_do(cli: Cli) -> None:
    """An empty list is where somebody is stuck."""
    assert "no worker is registered; start one: ghostless worker QUEUE\n" == done(cli("workers"))


def test_types_show_their_params(cli: Cli, store: Store) -> None:
    """What can be submitted, and with what; before anything is published, how to publish."""
    assert "ghostless types publish --tasks MODULE" in done(cli("types"))
    publish(store)
    assert [["work", "work", "30", "min", "3", "n"]] == cells(cli("types"))
    (kind,) = told(cli("types", "list", "--json"))["types"]
    assert ("work", 3, {"n": {"type": "integer"}}) == (
        kind["name"],
        kind["policy"]["max_retries"],
        kind["schema"]["properties"],
    )


def test_a_worker_over_http_is_shown_with_what_is_known_of_it(cli: Cli, client: Client, store: Store) -> None:
    """What it serves and since when, and nothing that only a worker with a connection tells."""
    publish(store)
    RemoteWorkers(store).listens("far", "work", ("work",), 30)
    assert [["far", "idle"]] == [line[:2] for line in cells(cli("workers"))]
    shown = done(cli("workers", "far"))
    assert re.search(r"host +not known: it works over HTTP", shown)
    assert re.search(r"types +work", shown)
    assert not re.search(r"ended|version", shown)
    assert ["far"] == told(cli("queues", "--json"))["queues"][0]["workers"]
