"""`GET /api/schedules`: each schedule as it stands, by every field, and as the description of the API has it."""

from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient
from ghostless.jobs import Context
from ghostless.jobs.client import Client
from ghostless.jobs.publishing import publish
from ghostless.jobs.recurrence import Misfire, Recurrence
from ghostless.jobs.registry import Registry
from ghostless.jobs.scheduler import Scheduler
from ghostless.jobs.schedules import Schedule
from redis import Redis

MINUTE, HOUR = 60_000, 3_600_000


def listed(web: FlaskClient) -> dict[str, dict[str, Any]]:
    """Return what is told of each schedule, by its name; they come in the order of their names."""
    answer = web.get("/api/schedules")
    assert 200 == answer.status_code
    names = [schedule["name"] for schedule in answer.json["schedules"]]
    assert sorted(names) == names
    return dict(zip(names, answer.json["schedules"], strict=True))


def missed(client: Client, name: str, runs: int) -> Schedule:
    """Let so many runs of a schedule of each minute be due, all but the last one for longer than a minute."""
    there, (_, now) = client.schedules.get(name), client.schedules.all()
    start = now - (runs - 1) * MINUTE - MINUTE // 2
    assert client.schedules.advance(there, replace(there, due=start, recurrence=Recurrence(every=MINUTE, start=start)))
    return client.schedules.get(name)


def test_every_field_of_a_schedule_that_never_ran(web: FlaskClient, client: Client) -> None:
    """A cron expression in its zone and an interval; what it submits, its rules, and the first run that is due."""
    nightly = Recurrence("30 2 * * *", "Europe/Berlin")
    client.schedules.put(Schedule("nightly", "work", nightly, {"n": 3}, "gpu", misfire="all", overlap="skip"))
    client.schedules.put(Schedule("hourly", "work", Recurrence(every=HOUR)))
    told, (_, now) = listed(web), client.schedules.all()
    never = {
        "paused": False, "last_due": None, "last_task": None, "last_problem": "", "skipped": 0, "declared": False,
        "type": "work", "source": "cli",
    }  # fmt: skip
    assert told["nightly"] == never | {
        "name": "nightly", "params": {"n": 3}, "queue": "gpu", "misfire": "all", "overlap": "skip",
        "due": nightly.next_after(now),
        "recurrence": {"cron": "30 2 * * *", "zone": "Europe/Berlin", "every": None, "start": 0},
    }  # fmt: skip
    registered = told["hourly"]["recurrence"].pop("start")
    assert now - MINUTE < registered <= now
    assert told["hourly"] == never | {
        "name": "hourly", "params": {}, "queue": None, "misfire": "once", "overlap": "allow",
        "due": registered + HOUR, "recurrence": {"cron": None, "zone": "UTC", "every": HOUR},
    }  # fmt: skip


def test_the_zone_tells_when(web: FlaskClient, client: Client) -> None:
    """The same hour of two zones is due at two moments."""
    for name, zone in (("east", "Asia/Tokyo"), ("west", "UTC")):
        client.schedules.put(Schedule(name, "work", Recurrence("0 12 * * *", zone)))
    told = listed(web)
    assert 9 * HOUR == (told["west"]["due"] - told["east"]["due"]) % (24 * HOUR)


def test_the_last_run_is_told(web: FlaskClient, client: Client) -> None:
    """When it was due, and which task it was; the next one is due after it."""
    client.schedules.put(Schedule("tidy", "work", Recurrence(every=MINUTE)))
    due = missed(client, "tidy", 1).due
    assert 1 == Scheduler(client).submit_due()
    told = listed(web)["tidy"]
    assert (due, due + MINUTE, "", 0) == tuple(told[name] for name in ("last_due", "due", "last_problem", "skipped"))
    assert {"schedule": "tidy", "due": due} == client.get(told["last_task"]).metadata


def test_a_run_that_would_overlap_is_told(web: FlaskClient, client: Client) -> None:
    """It is left out and counted, the reason names the run before, which stays the last task; then all is well."""
    client.schedules.put(Schedule("tidy", "work", Recurrence(every=MINUTE), overlap="skip"))
    dues = []
    for _ in range(2):
        dues.append(missed(client, "tidy", 1).due)
        Scheduler(client).submit_due()
    told = listed(web)["tidy"]
    assert f"left out: the run before, {told['last_task']}, is PENDING" == told["last_problem"]
    assert (1, dues[1]) == (told["skipped"], told["last_due"])
    client.cancel(told["last_task"])
    missed(client, "tidy", 1)
    Scheduler(client).submit_due()
    after = listed(web)["tidy"]
    assert (1, "", True) == (after["skipped"], after["last_problem"], after["last_task"] != told["last_task"])


@pytest.mark.parametrize(("misfire", "runs"), [("skip", 1), ("once", 2), ("all", 4)])
def test_missed_runs_follow_the_rule_that_is_told(
    web: FlaskClient, client: Client, misfire: Misfire, runs: int
) -> None:
    """Of four that were due three were missed; what was submitted is what `misfire` says, the newest is the last."""
    client.schedules.put(Schedule("tidy", "work", Recurrence(every=MINUTE), misfire=misfire))
    first = missed(client, "tidy", 4).due
    Scheduler(client).submit_due()
    told = listed(web)["tidy"]
    assert (misfire, first + 3 * MINUTE, first + 4 * MINUTE) == (told["misfire"], told["last_due"], told["due"])
    assert runs == len(web.get("/api/tasks?type=work").json["tasks"])


def test_a_pause_is_told(web: FlaskClient, client: Client) -> None:
    """Meanwhile nothing is submitted; afterwards it is due next, and nothing is made up for."""
    client.schedules.put(Schedule("tidy", "work", Recurrence(every=MINUTE), misfire="all"))
    due = missed(client, "tidy", 3).due
    client.schedules.pause("tidy")
    assert 0 == Scheduler(client).submit_due()
    told = listed(web)["tidy"]
    assert (True, due, None) == (told["paused"], told["due"], told["last_task"])
    client.schedules.resume("tidy")
    told, (_, now) = listed(web)["tidy"], client.schedules.all()
    assert not told["paused"]
    assert now < told["due"] <= now + MINUTE


def test_what_code_declares_is_told_and_what_was_removed_is_not(web: FlaskClient, client: Client) -> None:
    """The source says who registered it; `declared` stays when a person takes it over."""
    registry = Registry()

    @registry.task("report.build", cron="0 3 * * *", tz="Europe/Berlin")
    def build(ctx: Context) -> None:
        """Build the report."""

    publish(client.store, registry.published())
    told = listed(web)["report.build"]
    assert ("task", True, "report.build") == (told["source"], told["declared"], told["type"])
    client.schedules.remove("report.build")
    assert {} == listed(web)
    client.schedules.put(Schedule("report.build", "report.build", Recurrence(every=HOUR)))
    told = listed(web)["report.build"]
    assert ("cli", True) == (told["source"], told["declared"])


def test_a_damaged_record_hides_no_other(web: FlaskClient, client: Client, redis: Redis) -> None:
    """It is told by its name only: what is in it is for operators."""
    client.schedules.put(Schedule("tidy", "work", Recurrence(every=MINUTE)))
    redis.hset(client.store.keys.schedules, "broken", '{"name": "secret"}')
    told = listed(web)
    assert {"name": "broken", "damaged": True} == told["broken"]
    assert "work" == told["tidy"]["type"]


def test_each_field_is_explained(web: FlaskClient) -> None:
    """In `/openapi.json`, all but the name."""
    described = web.get("/openapi.json").json
    answer = described["paths"]["/api/schedules"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    schemas = described["components"]["schemas"]
    kinds = schemas[answer["$ref"].rpartition("/")[2]]["properties"]["schedules"]["items"]["anyOf"]
    whole, damaged = (schemas[kind["$ref"].rpartition("/")[2]]["properties"] for kind in kinds)
    assert {"name", "damaged"} == damaged.keys()
    unexplained = {field for field, schema in whole.items() if "description" not in schema}
    assert unexplained <= {"name", "recurrence"}
    assert all("description" in schema for schema in schemas["RecurrenceView"]["properties"].values())
