"""The verbs about tasks, on a real Redis: what they print, and how they refuse."""

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result
from ghostless.jobs import listing
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client, Filter
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.statemachine import Event
from redis import Redis
from web_tools import Hand, publish, submitted

Cli = Callable[..., Result]


@pytest.fixture
def cli(settings: Settings, store: Store) -> Cli:
    """Run a verb against an empty database in which the type `work` is published."""
    publish(store)

    def run(*arguments: str, **environment: str) -> Result:
        variables = {"GHOSTLESS_REDIS_URL": settings.redis_url, **environment}
        return CliRunner().invoke(main, list(arguments), env=variables)

    return run


def done(result: Result) -> str:
    """Check that a verb did what was asked, and return what it printed."""
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(result: Result, code: int, *parts: str) -> None:
    """Check that a verb refused in one line on stderr that says these things, and printed nothing else."""
    assert (code, "") == (result.exit_code, result.stdout), result.output
    *usage, line = result.stderr.strip().splitlines()
    assert line.startswith("Error: ")
    assert all(part in line for part in parts), line
    assert not usage or usage[0].startswith("Usage: ")
    assert "Traceback" not in result.stderr


def told(result: Result) -> Any:
    """Check that a verb did what was asked, and return its JSON."""
    return json.loads(done(result))


# submit


def test_submit_prints_the_id_alone(cli: Cli, client: Client) -> None:
    """stdout is for scripts, the hint for a person goes to stderr; the history says who it was."""
    result = cli("submit", "work", "-p", "n=7")
    task_id = done(result).strip()
    assert {"n": 7} == client.get(task_id).params
    assert f"ghostless status {task_id}" in result.stderr
    assert re.fullmatch(r"cli:\S+", client.history(task_id)[0].actor)


def test_submit_tells_of_a_queue_without_workers_and_of_an_end_at_once(cli: Cli, client: Client, redis: Redis) -> None:
    """The name of a queue may be mistaken; and what was cancelled as it came is not to be followed."""
    empty = "for now, no worker listens on its queue medai"
    assert empty in cli("submit", "work", "-p", "n=7", "--queue", "medai", "--id", "one").stderr
    redis.sadd("rq:workers", "rq:worker:w1")
    redis.hset("rq:worker:w1", mapping={"queues": "medai", "state": "idle"})
    assert empty not in cli("submit", "work", "-p", "n=7", "--queue", "medai").stderr
    client.cancel("one")
    late = cli("submit", "work", "-p", "n=7", "--depends-on", "one", "--id", "two")
    assert "accepted, CANCELLED; see why with: ghostless explain two" in late.stderr


def test_submit_passes_every_wish_on(cli: Cli, client: Client) -> None:
    """Each option ends up in its field of the task."""
    options = {
        "--id": "mine", "--queue": "other", "--delay": "60", "--timeout": "9", "--max-retries": "1", "--owner": "ann",
        "--metadata": '{"page": 1}', "--idempotency-key": "k1", "--params": '{"n": 1}',
    }  # fmt: skip
    flat = [word for option in options.items() for word in option]
    assert {"id": "mine", "state": "SCHEDULED", "created": True} == told(cli("submit", "work", *flat, "--json"))
    task = client.get("mine")
    assert ("other", "ann", {"page": 1}, {"n": 1}) == (task.queue, task.owner, task.metadata, task.params)
    assert (9000, 1) == (task.policy.timeout, task.policy.max_retries)
    assert 60_000 == (task.due_at or 0) - task.submitted_at
    assert told(cli("submit", "work", *flat, "--json"))["created"] is False


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("7", 7),
        ("true", True),
        ('"7"', "7"),
        ("a lighthouse", "a lighthouse"),
        ("", ""),
        ("a=b", "a=b"),
        ("[1, {}]", [1, {}]),
        ("NaN", "NaN"),
        ("{broken", "{broken"),
    ],
)
def test_a_value_is_json_or_else_text(cli: Cli, client: Client, store: Store, typed: str, given: Any) -> None:
    """-p name=value takes what a person types without quoting twice."""
    kind = {"queue": "work", "policy": "1000,3,2,3,2000,600000,604800000", "schema": {}, "description": ""}
    store.publish_types({"any": kind})
    assert {"it": given} == client.get(done(cli("submit", "any", "-p", f"it={typed}")).strip()).params


def test_named_params_win_over_the_object(cli: Cli, client: Client) -> None:
    """--params gives the whole, -p changes one."""
    task_id = done(cli("submit", "work", "--params", '{"n": 1}', "-p", "n=2")).strip()
    assert {"n": 2} == client.get(task_id).params


def test_run_at_takes_a_date_or_seconds(cli: Cli, client: Client) -> None:
    """Both name the same moment."""
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    for when in (moment.isoformat(), moment.astimezone().replace(tzinfo=None).isoformat(), str(moment.timestamp())):
        task_id = done(cli("submit", "work", "--run-at", when)).strip()
        assert moment.timestamp() * 1000 == client.get(task_id).due_at


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["wrok"], 1, ["'wrok'", "did you mean work?"]),
        (["no blanks"], 1, ["type: expected text matching"]),
        (["work", "-p", "n=seven"], 1, ["params.n: 'seven' is not of type 'integer'"]),
        (["work", "-p", "m=1"], 1, ["params:", "'m' was unexpected"]),
        (["work", "-p", "n"], 2, ["'-p'", "expected NAME=VALUE, got 'n'"]),
        (["work", "-p", "=1"], 2, ["'-p'", "expected NAME=VALUE"]),
        (["work", "--params", "{n: 1}"], 2, ["'--params'", "expected JSON"]),
        (["work", "--params", "[1]"], 1, ["params: expected an object"]),
        (["work", "--params", "NaN"], 2, ["'--params'", "NaN is not JSON"]),
        (["work", "--metadata", "{"], 2, ["'--metadata'", "expected JSON"]),
        (["work", "--id", "a b"], 1, ["id: expected text matching"]),
        (["work", "--queue", "a b"], 1, ["queue: expected text matching"]),
        (["work", "--owner", ""], 1, ["owner: expected"]),
        (["work", "--idempotency-key", "\n"], 1, ["idempotency_key: expected"]),
        (["work", "--delay", "-1"], 1, ["delay: expected a number of seconds"]),
        (["work", "--delay", "nan"], 1, ["delay: expected a number of seconds"]),
        (["work", "--delay", "soon"], 2, ["'--delay'", "expected a number of seconds from 0 to 31622400, got 'soon'"]),
        (["work", "--run-at", "tomorrow"], 2, ["'--run-at'", "expected a time like"]),
        (["work", "--run-at", "inf"], 1, ["run_at: expected"]),
        (["work", "--delay", "1", "--run-at", "2000000000"], 1, ["run_at: give either delay or run_at"]),
        (["work", "--timeout", "0"], 1, ["timeout: expected"]),
        (["work", "--max-retries", "-1"], 1, ["max_retries: expected"]),
        (["work", "--max-retries", "x"], 2, ["'--max-retries'", "expected a whole number from 0 to 1000, got 'x'"]),
    ],
)
def test_what_cannot_be_submitted_is_refused_by_name(
    cli: Cli, client: Client, arguments: list[str], code: int, parts: list[str]
) -> None:
    """Every fault names its field, in one line; nothing is stored."""
    refused(cli("submit", *arguments), code, *parts)
    assert 0 == sum(client.counts().values())


def test_an_id_of_another_task_is_refused(cli: Cli, client: Client) -> None:
    """Exit 1, and the other task stays as it is."""
    submitted(client, id="taken", params={"n": 1})
    refused(
        cli("submit", "work", "--id", "taken", "-p", "n=2"), 1, "'taken'", "a task of another type or with other params"
    )


def test_wait_follows_a_task_to_its_good_end(cli: Cli, client: Client, hand: Hand) -> None:
    """With --wait the exit code is about the task's outcome, and the state is printed."""
    submitted(client, id="w1")
    hand.run()
    assert "w1 SUCCESS\n" == done(cli("submit", "work", "--id", "w1", "--wait"))
    assert "SUCCESS" == told(cli("submit", "work", "--id", "w1", "--wait", "--json"))["state"]


def test_wait_fails_with_the_reason_when_the_task_does(cli: Cli, client: Client, hand: Hand) -> None:
    """Exit 1 with the last line of the error."""
    submitted(client, id="w2", max_retries=0)
    hand.run(event=Event.FAIL)
    result = cli("submit", "work", "--id", "w2", "--max-retries", "0", "--wait")
    assert (1, "w2 FAILED\n") == (result.exit_code, result.stdout)
    assert "the task ended in FAILED: it broke" in result.stderr


# status, list, history


def test_status_reads_well(cli: Cli, client: Client) -> None:
    """The state, since when, and what to do next come first."""
    task_id = submitted(client, params={"n": 1}, owner="ann")
    fields = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in done(cli("status", task_id)).splitlines())
    assert ["task", "state", "since", "next"] == list(fields)[:4]
    assert (task_id, "PENDING", '{"n": 1}', "ann") == tuple(
        fields[name] for name in ("task", "state", "params", "owner")
    )
    assert "`ghostless worker work`" in fields["next"]
    assert re.fullmatch(r"\d\d:\d\d:\d\d \(\d\.\d s ago\)", fields["since"])


def test_status_shows_a_failure_in_one_line(cli: Cli, client: Client, hand: Hand) -> None:
    """The last line of the error, how often it failed, and how to retry."""
    task_id = submitted(client, max_retries=0)
    hand.run(event=Event.FAIL)
    shown = done(cli("status", task_id))
    assert "it broke" in shown
    assert "1 (1 failed)" in shown
    assert f"ghostless retry {task_id}" in shown


def test_status_as_json_is_the_whole_task(cli: Cli, client: Client) -> None:
    """The same fields as the HTTP API."""
    task_id = submitted(client)
    assert json.loads(json.dumps(client.get(task_id).to_dict())) == told(cli("status", task_id, "--json"))


def test_list_shows_the_latest_change_first(cli: Cli, client: Client, hand: Hand) -> None:
    """One aligned line a task under a heading, without colours when piped."""
    ids = [submitted(client, id=f"t{number}", queue="work") for number in range(3)]
    time.sleep(0.005)  # changes within one millisecond stand in the order of their ids
    hand.run()
    lines = done(cli("list")).splitlines()
    assert lines[0].split() == ["TASK", "TYPE", "QUEUE", "STATE", "SINCE", "ATTEMPT", "PROGRESS", "OWNER"]
    assert [ids[0], ids[2], ids[1]] == [line.split()[0] for line in lines[1:]]
    assert "\x1b" not in "".join(lines)


def test_list_filters_and_pages(cli: Cli, client: Client, store: Store) -> None:
    """Each filter narrows it; a page names the next one."""
    publish(store, "other", queue="work")
    submitted(client, id="a", owner="ann")
    submitted(client, id="b", type="other", queue="q2")
    for filters, ids in [
        (["--owner", "ann"], ["a"]),
        (["--type", "other"], ["b"]),
        (["--queue", "q2"], ["b"]),
        (["--state", "pending"], ["b", "a"]),
        (["--state", "FAILED"], []),
    ]:
        assert ids == [task["id"] for task in told(cli("list", *filters, "--json"))["tasks"]]
    first = told(cli("list", "--limit", "1", "--json"))
    second = told(cli("list", "--limit", "1", "--cursor", first["next"], "--json"))
    assert ["b", "a"] == [page["tasks"][0]["id"] for page in (first, second)]


def test_list_goes_on_over_short_pages(cli: Cli, client: Client, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a page of the core has little or nothing that fits, and a cursor: it shows as many as were asked for."""
    monkeypatch.setattr(listing, "LOOKED_AT", 4)
    publish(store, "other", queue="work")
    wanted = [submitted(client, id=f"a{number}", type="other", owner="ann") for number in range(3)]
    for _ in range(10):
        submitted(client, owner="ann")
        submitted(client, type="other", owner="bob")
    asked = ("list", "--type", "other", "--owner", "ann", "--json")
    assert [] == list(client.list(Filter(type="other", owner="ann")).tasks)
    assert (wanted[::-1], None) == _listed(told(cli(*asked)))
    ids, cursor = _listed(told(cli(*asked, "--limit", "2")))
    assert wanted[:0:-1] == ids
    assert (wanted[:1], None) == _listed(told(cli(*asked, "--cursor", cursor)))


def _listed(page: dict[str, Any]) -> tuple[list[str], str | None]:
    return [task["id"] for task in page["tasks"]], page["next"]


def test_an_empty_list_says_so(cli: Cli) -> None:
    """No heading over nothing."""
    assert "no tasks here yet\n" == done(cli("list"))


def test_an_empty_list_says_what_was_asked_for(cli: Cli) -> None:
    """That nothing fits, and which types there are where that is none: it may be mistyped."""
    assert "no task fits\n" == done(cli("list", "--state", "FAILED"))
    assert "no task fits; wrok is not published, these types are: work\n" == done(cli("list", "--type", "wrok"))
    assert "no task fits\n" == done(cli("list", "--type", "work"))


def test_a_damaged_record_is_shown_as_one(cli: Cli, client: Client, redis: Redis) -> None:
    """One bad record never hides the others."""
    submitted(client, id="good")
    submitted(client, id="bad")
    redis.hset(client.store.keys.task("bad"), "policy", "nonsense")
    shown = done(cli("list"))
    assert "bad" in shown
    assert "damaged: " in shown
    assert "good" in shown
    refused(cli("status", "bad"), 1, "damaged data in Redis: task bad")
    [told] = [task for task in json.loads(done(cli("list", "--json")))["tasks"] if task["id"] == "bad"]
    assert {"id": "bad", "damaged": True, "detail": told["detail"]} == told


def test_history_has_one_line_a_move(cli: Cli, client: Client, hand: Hand) -> None:
    """When, from where to where, the event, who and why."""
    task_id = submitted(client, max_retries=0)
    hand.run(event=Event.FAIL)
    lines = done(cli("history", task_id)).splitlines()
    assert 4 == len(lines)
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}\s+\d\.\d s ago  -\s+->  PENDING\s+SUBMIT\s+0  client\s+user", lines[1])
    assert ["PENDING", "->", "PROCESSING", "START", "1", "worker:hand"] == lines[2].split()[4:10]
    assert ["PROCESSING", "->", "FAILED", "FAIL", "1", "worker:hand", "exception"] == lines[3].split()[4:11]
    entries = told(cli("history", task_id, "--json"))
    assert [entry.to_dict() for entry in client.history(task_id)] == entries["entries"]


# cancel, pause, resume, retry


def test_actions_say_what_became_of_the_task(cli: Cli, client: Client) -> None:
    """Each tells the state it led to; asked twice it says that nothing changed; the message is in the history."""
    task_id = submitted(client)
    assert f"{task_id} is PAUSED\n" == done(cli("pause", task_id, "--message", "lunch"))
    assert f"{task_id} is already PAUSED; nothing was changed\n" == done(cli("pause", task_id))
    assert f"{task_id} is PENDING\n" == done(cli("resume", task_id))
    assert {"id": task_id, "answer": "moved", "state": "CANCELLED"} == told(cli("cancel", task_id, "--json"))
    assert f"{task_id} ended in CANCELLED; nothing was changed\n" == done(cli("cancel", task_id))
    pause = client.history(task_id)[1]
    assert ("PAUSE", "lunch") == (pause.event, pause.message)
    assert pause.actor.startswith("cli:")


def test_cancelling_a_running_task_tells_that_its_worker_was_asked(cli: Cli, client: Client, hand: Hand) -> None:
    """It is not cancelled yet, and the sentence does not say so."""
    task_id = submitted(client)
    hand.start()
    assert f"{task_id} is CANCELLING, its worker was asked to stop\n" == done(cli("cancel", task_id))


def test_retry_gives_a_failed_task_another_life(cli: Cli, client: Client, hand: Hand) -> None:
    """Exit 0; a task that cannot be retried is exit 1 with its state."""
    task_id = submitted(client, max_retries=0)
    client.pause(task_id)
    refused(cli("retry", task_id), 1, task_id, "PAUSED", "RETRY is not possible")
    client.resume(task_id)
    hand.run(event=Event.FAIL)
    assert "RETRY_WAITING" in done(cli("retry", task_id))


@pytest.mark.parametrize("verb", ["status", "history", "log", "cancel", "pause", "resume", "retry"])
def test_an_unknown_task_is_exit_1(cli: Cli, verb: str) -> None:
    """The id is named."""
    refused(cli(verb, "nobody"), 1, "no task has the id 'nobody'")


def test_log_shows_what_the_handler_printed(cli: Cli, client: Client) -> None:
    """Line by line, with control characters spelled out; a task that printed nothing prints nothing."""
    task_id = submitted(client)
    assert "" == done(cli("log", task_id))
    client.store.redis.rpush(client.store.keys.log(task_id), "one", "two \x1b[31m")
    assert ["one", "two \\x1b[31m"] == done(cli("log", task_id)).splitlines()
    assert ["one", "two \x1b[31m"] == told(cli("log", task_id, "--json"))["lines"]


# Every verb


READING = [
    ["list"],
    ["stats"],
    ["queues"],
    ["workers"],
    ["types"],
    ["status", "x"],
    ["history", "x"],
    ["log", "x"],
    ["submit", "work"],
]


@pytest.mark.parametrize("verb", [*READING, ["cancel", "x"], ["queues", "pause", "x"], ["watchdog"]])
def test_a_redis_that_does_not_answer_is_exit_3(verb: list[str]) -> None:
    """One line that says what to check."""
    result = CliRunner().invoke(main, ["--redis-url", "redis://127.0.0.1:1/0", *verb])
    refused(result, 3, "Redis is not reachable", "check GHOSTLESS_REDIS_URL")


@pytest.mark.parametrize(
    ("options", "environment", "parts"),
    [
        (["--redis-url", "http://x"], {}, ["--redis-url: expected an address like redis://"]),
        (["--redis-url", "redis://127.0.0.1:port/0"], {}, ["--redis-url: expected"]),
        (["--prefix", "a b"], {}, ["--prefix: expected 1 to 64 printable"]),
        ([], {"GHOSTLESS_REDIS_URL": "nonsense"}, ["GHOSTLESS_REDIS_URL: expected an address"]),
        ([], {"GHOSTLESS_BEAT": "often"}, ["GHOSTLESS_BEAT: expected a number", "got 'often'"]),
        ([], {"GHOSTLESS_LEASE": "6"}, ["GHOSTLESS_LEASE: expected at least two beats"]),
    ],
)
def test_a_setting_that_cannot_be_used_is_exit_2(
    options: list[str], environment: dict[str, str], parts: list[str]
) -> None:
    """By the name under which it was given: the option, or the variable."""
    refused(CliRunner().invoke(main, [*options, "list"], env=environment), 2, *parts)


def test_global_options_win_over_the_environment(cli: Cli, settings: Settings, redis: Redis) -> None:
    """Two prefixes do not see each other's tasks."""
    elsewhere = ["--redis-url", settings.redis_url, "--prefix", "other:"]
    publish(Store(redis, Settings(redis_url=settings.redis_url, prefix="other:")))
    done(cli(*elsewhere, "submit", "work", GHOSTLESS_REDIS_URL="redis://127.0.0.1:1/0"))
    assert "no tasks here yet\n" == done(cli("list"))
    assert "PENDING" in done(cli(*elsewhere, "list"))
    assert "PENDING" in done(cli("list", GHOSTLESS_PREFIX="other:"))


@pytest.mark.parametrize("verb", READING)
def test_every_reading_verb_speaks_json(cli: Cli, client: Client, verb: list[str]) -> None:
    """--json prints one document and nothing else."""
    submitted(client, id="x")
    assert isinstance(told(cli(*verb, "--json")), dict)


def test_what_redis_refuses_in_its_own_words_is_one_line(cli: Cli, settings: Settings) -> None:
    """A database number that the server does not have, say."""
    result = cli("--redis-url", settings.redis_url.replace("/0", "/9999"), "list")
    assert result.exit_code in (1, 3)
    assert "DB index is out of range" in result.stderr
    assert 1 == len(result.stderr.strip().splitlines())
