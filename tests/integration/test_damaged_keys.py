"""A key of the whole that is of another type, or holds no number where one must be: told, and nothing else breaks."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient
from ghostless.jobs.cli import main
from ghostless.jobs.client import Client
from ghostless.jobs.connection import connect
from ghostless.jobs.doctor import Doctor, Problem
from ghostless.jobs.groups import BEGINNING
from ghostless.jobs.inventory import NUMBERS, REBUILT, REMADE, place_of
from ghostless.jobs.keys import Keys
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.upkeep import Upkeep
from ghostless.statemachine import State
from redis import Redis
from scripts.seeding import BY_PERSON, BY_WATCHDOG, PLACE, QUEUE, put, scene

KEYS = Keys()
FIXED = sorted(
    name
    for name in dir(Keys)
    if isinstance(getattr(Keys, name), property) and not name.startswith("rq_") and name != "live"
)
"""The keys of which there is one each, but the channel."""

EACH = {
    **{name: getattr(KEYS, name) for name in FIXED},
    **{name: getattr(KEYS, name)(QUEUE) for name in ("pending", "parked_types", "wake")},
    **{name: getattr(KEYS, name)(PLACE) for name in ("listed", "parked")},
    **{name: getattr(KEYS, name)("x") for name in ("owned", "listener", "parked_entries", "claim", "events")},
    **{name: getattr(KEYS, name)("x") for name in ("http_worker", "due_deliveries", "alert", "alert_window")},
    "state": KEYS.state(State.PENDING),
}
"""Each sort of key that is no task's, with the name of one."""

POISON = ("soon", "9" * 5_000)
"""Texts that are no numbers, and one that is too long to be read as one."""

DAMAGED_NUMBERS = [(family, field) for family, fields in NUMBERS.items() for field in fields]


@pytest.fixture
def examine(redis: Redis, settings: Settings) -> Iterator[Callable[..., list[Problem]]]:
    """Let a doctor look, or with the name of an actor repair; return what it tells."""
    with connect(settings, exact=True) as exact:
        yield lambda actor="": list(Doctor(Store(exact, settings), actor).audit())


@pytest.fixture
def whole(redis: Redis, client: Client) -> Redis:
    """A database in which there is something of everything."""
    put(scene(redis), State.PENDING)
    client.listeners.create("mail", BEGINNING)
    client.store.sweep(BY_WATCHDOG)
    upkeep = Upkeep(client.store)
    upkeep.patrol(BY_WATCHDOG)
    upkeep.prune(BY_WATCHDOG)
    return redis


def assert_all_answer(web: FlaskClient, settings: Settings) -> None:
    """Check that who looks at the whole is answered, also when a part of it is damaged."""
    assert [200] * 3 == [web.get(path).status_code for path in ("/metrics", "/healthz", "/api/stats")]
    shown = CliRunner().invoke(main, ("stats",), env={"GHOSTLESS_REDIS_URL": settings.redis_url})
    assert 0 == shown.exit_code, shown.output


def lines(problems: list[Problem], what: str) -> list[tuple[str, str, str]]:
    """Return of the problems that are told so the rule, whose it is, and what becomes of it."""
    return [(one.rule, one.task_id, one.outcome) for one in problems if one.what.startswith(what)]


@pytest.mark.parametrize("sort", EACH)
def test_a_key_of_another_type(
    web: FlaskClient, whole: Redis, settings: Settings, examine: Callable[..., list[Problem]], sort: str
) -> None:
    """The doctor names it once; other parts are told all the same; a repair makes room for what is made anew."""
    name, place = EACH[sort], place_of(KEYS, EACH[sort])
    whole.delete(name)
    (whole.rpush if place.type != "list" else whole.sadd)(name, "poison")
    found = lines(examine(), f"{name} is a ")
    is_mended = place.family in REMADE | REBUILT
    assert [("c", "-", "repairable" if is_mended else "kept")] == found
    assert_all_answer(web, settings)
    assert lines(examine(BY_PERSON), f"{name} is a ")
    assert is_mended == (whole.type(name) in ("none", place.type))
    assert whole.exists(KEYS.set_aside(name)) == (place.family in REBUILT)


@pytest.mark.parametrize(("family", "field"), DAMAGED_NUMBERS)
def test_a_number_that_is_none(
    web: FlaskClient,
    whole: Redis,
    settings: Settings,
    examine: Callable[..., list[Problem]],
    family: str,
    field: str,
) -> None:
    """The doctor names key and field; a trace of a walk or a sweep is removed, since the next one makes it anew."""
    name = KEYS.prefix + family
    whole.hset(name, field, POISON[len(field) % 2])
    is_remade = family in REMADE
    assert ("c", "-", "repairable" if is_remade else "kept") in lines(examine(), f"{name}: {field} is ")
    assert_all_answer(web, settings)
    examine(BY_PERSON)
    assert bool(whole.exists(name)) != is_remade


def test_what_a_part_cannot_be_read_is_told(web: FlaskClient, whole: Redis) -> None:
    """It is null, and the answer says why; the other parts are as ever."""
    whole.hset(KEYS.ledger, "purged", "many")
    told: dict[str, Any] = web.get("/api/stats").get_json()
    assert told["ledger"] is None
    assert KEYS.ledger in told["damaged"]["ledger"]
    assert 1 == told["states"][State.PENDING]
    assert "ghostless_tasks_submitted_total" not in (numbers := web.get("/metrics").text)
    assert "ghostless_tasks{" in numbers


def test_each_number_has_a_line_in_the_inventory(whole: Redis) -> None:
    """What the scripts write there is a whole number, or is known to be something else."""
    texts = {"actor", "reached", "unlisted"}
    for family in NUMBERS:
        assert whole.hgetall(KEYS.prefix + family).keys() <= {*NUMBERS[family], *texts}, family
