"""The verbs about the whole, on a real Redis: counts, queues, workers, types."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
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
    assert {"name": "work", "state": "running", "pending": 1, "workers": ["hand"]} in told(
        cli("queues", "list", "--json")
    )["queues"]


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
    assert ["hand", "busy", task_id, "work", "gpu", "box", "4711"] == line[:7]
    (member,) = told(cli("workers", "--json"))["workers"]
    assert (["work", "gpu"], [task_id], 4711) == (member["queues"], member["tasks"], member["pid"])
    assert (1_795_996_800_000, 1_795_993_200_000) == (member["heartbeat_at"], member["started_at"])


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
