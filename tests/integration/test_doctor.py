"""`ghostless doctor`: what it says and does, beside the oracle of the tests."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from audit import audit
from ghostless.jobs.batches import ask_each
from ghostless.jobs.connection import connect
from ghostless.jobs.doctor import Doctor, Problem
from ghostless.jobs.errors import RedisUnavailable
from ghostless.jobs.inventory import REMADE, place_of
from ghostless.jobs.keys import Keys
from ghostless.jobs.messages import Claim
from ghostless.jobs.preflight import Finding
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.upkeep import Leaf, Upkeep
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import STORED, Policy, State
from helpers import run_command
from redis import Redis
from redis_server import evicting
from scripts.seeding import (
    BY_PERSON,
    BY_WATCHDOG,
    ID,
    QUEUE,
    TYPE,
    WORKER,
    Scene,
    claimed,
    park,
    put,
    scene,
    step,
    submission,
)
from scripts.test_audit import DAMAGE
from scripts.test_poison import MEMBERS, MISSING, clear_poison, poison

QUICK = {"GHOSTLESS_BEAT": "0.05", "GHOSTLESS_LEASE": "1.5", "GHOSTLESS_SWEEP": "0.1"}

Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def quick(settings: Settings) -> Settings:
    """Settings under which a ticket may be missing for a tenth of a second only."""
    return Settings.from_environment({**QUICK, "GHOSTLESS_REDIS_URL": settings.redis_url})


@pytest.fixture
def stage(redis: Redis) -> Scene:
    """An empty database."""
    return scene(redis)


@pytest.fixture
def examine(quick: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[Problem]]]:
    """Let a doctor look, or with the name of an actor repair; return what it tells."""
    monkeypatch.setattr("ghostless.jobs.tickets.SECOND_LOOK", 0.01)
    with connect(quick, exact=True) as exact:
        yield lambda actor="": list(Doctor(Store(exact, quick), actor).audit())


@pytest.fixture
def ask(settings: Settings, redis: Redis) -> Ask:
    """Run the command; return its exit code and what it printed."""

    def run(*arguments: str, **variables: str) -> tuple[int, str]:
        environment = {**os.environ, **QUICK, "GHOSTLESS_REDIS_URL": settings.redis_url, **variables}
        return run_command(*arguments, environment=environment)

    return run


# The audit


def test_a_sound_database_has_no_problem(examine: Callable[..., list[Problem]], stage: Scene) -> None:
    """In every state, and parked; a repair changes nothing."""
    assert [] == examine()
    for state in STORED:
        stage.start_over()
        put(stage, state)
        assert [] == examine() == examine(BY_PERSON), state
    stage.start_over()
    put(stage, State.PENDING)
    park(stage)
    assert [] == examine() == examine(BY_PERSON)


def test_a_damaged_record_that_was_set_aside_is_not_written_off(
    redis: Redis, stage: Scene, examine: Callable[..., list[Problem]]
) -> None:
    """It is told and counted, wherever it was set aside; once a person has put it right, the ledger adds up."""
    put(stage, State.PENDING)
    redis.hset(stage.keys.task(ID), "failures", "many")
    while redis.zcard(stage.keys.pending(QUEUE)):
        step(stage, "prune")
    assert {"a", "c"} == {problem.rule for problem in examine(BY_PERSON) if not problem.is_solved}
    redis.hset(stage.keys.task(ID), "failures", "0")
    assert 1 == step(stage, "patrol").moved
    assert all(problem.is_solved for problem in examine(BY_PERSON))
    assert [] == audit(redis, stage.keys, [ID])
    assert "1" == redis.hget(stage.keys.ledger, "submitted")


def test_only_what_is_lost_is_written_off_beside_a_damaged_record(
    redis: Redis, stage: Scene, examine: Callable[..., list[Problem]]
) -> None:
    """The damaged one goes on being counted, so the ledger adds up before and after a person puts it right."""
    stage.store.submit_many([submission(task_id) for task_id in ("lost", "damaged")])
    redis.hset(stage.keys.task("damaged"), "failures", "many")
    redis.delete(stage.keys.task("lost"))
    for _ in range(20):
        step(stage, "prune")
    examine(BY_PERSON)
    redis.hset(stage.keys.task("damaged"), "failures", "0")
    examine(BY_PERSON)
    assert ["2", "1"] == redis.hmget(stage.keys.ledger, "submitted", "lost")
    assert [] == examine()


NOT_OURS = {"a strange key"}
"""Keys outside of the prefix may be anybody's in a Redis that is shared; in a test they are a leak."""

FOR_PEOPLE = {
    *("an unknown state", "the record is a string", "an entry is gone", "an entry is not named", "an illegal step"),
    *("a jump", "a state without a step", "entries in another order", "an unknown reason", "nobody did it"),
    *("another attempt", "a key without TTL", "the passing state"),
}
"""Damage that nothing can put right: the truth itself is gone."""


@pytest.mark.parametrize(("what", "state", "damage", "violation"), DAMAGE, ids=[case[0] for case in DAMAGE])
def test_it_agrees_with_the_oracle(
    redis: Redis,
    stage: Scene,
    examine: Callable[..., list[Problem]],
    what: str,
    state: State,
    damage: Callable[[Scene], object],
    violation: str,
) -> None:
    """What the tests' oracle sees the doctor sees too; what it repairs both find well, and what it cannot it says."""
    put(stage, state)
    damage(stage)
    assert audit(redis, stage.keys, [ID])
    assert (examine() == []) == (what in NOT_OURS)
    repaired = examine(BY_PERSON)
    assert all(problem.is_solved for problem in repaired) != (what in FOR_PEOPLE), repaired
    if what not in FOR_PEOPLE | NOT_OURS:
        accepted = [] if what == "the task is gone" else [ID]
        assert [] == audit(redis, stage.keys, accepted)
        assert [] == examine()


def test_a_problem_is_one_line_that_names_rule_task_fault_and_remedy(
    stage: Scene, examine: Callable[..., list[Problem]]
) -> None:
    """Before the repair what can be done, after it what was."""
    put(stage, State.PROCESSING)
    stage.redis.zrem(stage.keys.deadlines, ID)
    wrong = "b: t1: it is PROCESSING and not in ghostless:deadlines"
    assert [f"{wrong}; --repair puts it right"] == [str(problem) for problem in examine()]
    assert [f"{wrong}; repaired"] == [str(problem) for problem in examine(BY_PERSON)]


def test_a_lost_record_is_told_with_its_last_move(stage: Scene, examine: Callable[..., list[Problem]]) -> None:
    """B55: what was the task's last known state; a repair clears what is left and books the task as lost."""
    put(stage, State.PROCESSING)
    stage.store.submit(submission("t2"))
    stage.redis.delete(stage.keys.task(ID))
    (told,) = examine()
    assert ("a", ID) == (told.rule, told.task_id)
    assert "its last move: START from PENDING to PROCESSING by worker:w1" in told.what
    assert stage.keys.deadlines in told.what
    assert ["a", "h"] == [problem.rule for problem in examine(BY_PERSON)]
    assert [] == examine()
    assert [] == audit(stage.redis, stage.keys, ["t2"])
    assert "1" == stage.redis.hget(stage.keys.ledger, "lost")


def test_strays_in_indices_of_other_queues_and_types(stage: Scene, examine: Callable[..., list[Problem]]) -> None:
    """Indices are gone through member by member, those that the task does not name included."""
    redis, keys = stage.redis, stage.keys
    put(stage, State.PENDING)
    redis.zadd(keys.pending("elsewhere"), {ID: 5, "nobody": 6})
    redis.zadd(keys.parked("elsewhere:type"), {ID: 5})
    redis.zadd(keys.due, {"nobody": 6})
    found = {(problem.rule, problem.task_id) for problem in examine()}
    assert {("b", ID), ("c", "nobody")} == found
    assert all(problem.is_solved for problem in examine(BY_PERSON))
    assert [] == examine()
    assert [] == audit(redis, keys, [ID])


def test_poison_in_an_owners_index(stage: Scene, examine: Callable[..., list[Problem]]) -> None:
    """Whatever he is called: what is no task of his leaves it, what cannot be read is told, and his task stays."""
    redis, keys = stage.redis, stage.keys
    for owner in ("Ann: [*] ?", "a", "ghostless:task:x", "\u00e4" * 32, f"{ID} {ID}"):
        stage.start_over()
        put(stage, State.PENDING, owner=owner)
        stage.store.submit(submission("t2"))
        poison(stage, State.PENDING)
        redis.zadd(keys.owned(owner), {"t2": 5, **{member: number for number, member in enumerate(MEMBERS)}})
        examine(BY_PERSON)
        left = {member.decode("utf-8", "replace") for member in MEMBERS if member not in MISSING}
        assert left | {ID} == set(redis.zrange(keys.owned(owner), 0, -1))
        clear_poison(stage)
        examine(BY_PERSON)
        assert [] == examine()
        assert [] == audit(redis, keys, [ID, "t2"])


def test_an_index_of_a_wrong_type_ends_only_its_own_part(stage: Scene, examine: Callable[..., list[Problem]]) -> None:
    """The rest of the audit goes on, and the damage is named."""
    put(stage, State.PENDING)
    stage.redis.set(stage.keys.due, "text")
    stage.redis.hincrby(stage.keys.ledger, "submitted", 1)
    told = [str(problem) for problem in examine()]
    assert any("ghostless:due" in line or "WRONGTYPE" in line for line in told), told
    assert any(line.startswith("h: ") for line in told), told


def test_tasks_in_motion_are_no_problem(
    redis: Redis, stage: Scene, examine: Callable[..., list[Problem]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While tasks are submitted, started and finished between its steps, it tells of none."""
    moves = iter(range(10**6))

    def moving(*arguments: Any) -> list[Any]:
        stage.store.submit(submission(f"new{next(moves)}"))
        stage.store.cancel(claimed(stage.store, Claim.new("w1", [QUEUE], [TYPE])).held.task_id, BY_PERSON)
        return ask_each(*arguments)

    stage.store.submit_many([submission(f"t{number}") for number in range(50)])
    monkeypatch.setattr("ghostless.jobs.doctor.ask_each", moving)
    assert [] == examine()
    assert next(moves) > 5
    assert [] == audit(redis, stage.keys)


@pytest.mark.parametrize("actor", ["", BY_PERSON])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_purge_in_motion_is_no_problem(
    stage: Scene, examine: Callable[..., list[Problem]], monkeypatch: pytest.MonkeyPatch, actor: str, steps: int
) -> None:
    """Long histories that watchdogs begin to delete, and delete, while it reads them are told by no audit or repair."""
    monkeypatch.setattr("ghostless.jobs.watchdog_steps.ENTRIES_DELETED", 1)
    monkeypatch.setattr("ghostless.jobs.upkeep.LEAFED", 2)
    read = Upkeep.leaf_through

    def purging(upkeep: Upkeep, *arguments: Any, **options: Any) -> Leaf:
        leaf = read(upkeep, *arguments, **options)
        for _ in range(steps):
            stage.store.purge()
        return leaf

    ids = [f"a.{number}" for number in range(10)]
    stage.store.submit_many([submission(task_id, Policy(retention=1)) for task_id in ids])
    for task_id in ids:
        stage.store.cancel(task_id, BY_PERSON)
    monkeypatch.setattr(Upkeep, "leaf_through", purging)
    assert [] == examine(actor)
    assert "10" == stage.redis.hget(stage.keys.ledger, "purged")
    assert [] == examine(actor) == audit(stage.redis, stage.keys, ids)


def test_every_key_of_the_product_is_in_the_inventory() -> None:
    """Each name of `Keys` below the prefix is known, with the life that its docstring says."""
    keys = Keys()
    for name in dir(Keys):
        member = getattr(Keys, name)
        if name.startswith(("_", "rq_")) or name in ("prefix", "live"):
            continue
        place = place_of(keys, getattr(keys, name) if isinstance(member, property) else getattr(keys, name)("x"))
        told = member.__doc__ or ""
        passes = name in ("watchdog", "patrol", "prune") or "with TTL" in told
        life = "ending" if "with TTL once" in told else "passing" if passes else "kept"
        assert (life, told.partition(" ")[0].rstrip(":")) == (place.life, place.type), name


# The command


def test_a_healthy_database(ask: Ask, stage: Scene) -> None:
    """Exit code 0, and a few lines that say what was looked at."""
    put(stage, State.SUCCESS)
    code, shown = ask("doctor")
    assert 0 == code, shown
    assert "looked at 1 tasks, 3 history entries, 1 queues in" in shown
    assert "nothing is wrong with what is stored" in shown
    assert "Redis: warning: IT KEEPS NOTHING OVER A RESTART" in shown
    assert "no watchdog sweeps" in shown
    stage.store.sweep(BY_WATCHDOG)
    assert "no watchdog" not in ask("doctor")[1]


def test_a_broken_database_and_its_repair(ask: Ask, stage: Scene) -> None:
    """Exit code 1 and a line; --repair puts it right and ends with 0, and the history tells who did it."""
    put(stage, State.PENDING)
    stage.redis.zrem(stage.keys.pending(QUEUE), ID)
    stage.redis.lrem(stage.keys.rq_queue(QUEUE), 0, ID)
    code, shown = ask("doctor")
    assert 1 == code
    assert "b: t1: it is PENDING and not in ghostless:pending:q; --repair puts it right" in shown
    code, shown = ask("doctor", "--repair")
    assert 0 == code, shown
    assert "2 problems, 2 of them solved" in shown
    assert 0 == ask("doctor")[0]
    assert [] == audit(stage.redis, stage.keys, [ID])
    repair = stage.redis.xrevrange(stage.keys.history, count=1)[0][1]
    assert ("REPAIR", "cli:") == (repair["event"], repair["actor"][:4])


def test_json(ask: Ask, stage: Scene) -> None:
    """Everything that was found, for programs; ids that are no text included."""
    put(stage, State.PENDING)
    stage.redis.zadd(stage.keys.due, {b"\xff": 1})
    code, shown = ask("doctor", "--json")
    told = json.loads(shown)
    assert (1, False, 1) == (code, told["healthy"], told["tasks"])
    assert [("c", "\\xff", "remains")] == [(one["rule"], one["task_id"], one["outcome"]) for one in told["problems"]]
    assert {"level", "what", "advice"} == told["server"][0].keys()


def test_what_cannot_be_repaired_stays_an_error(ask: Ask, stage: Scene) -> None:
    """A history that does not replay is told, also after --repair."""
    put(stage, State.PROCESSING)
    stage.redis.xdel(stage.keys.history, stage.task["h1"])
    code, shown = ask("doctor", "--repair")
    assert 1 == code
    assert "e: t1: entry 1" in shown
    assert "look at it by hand" in shown


# Preflight


@pytest.mark.parametrize("allowed", [False, True])
def test_watchdogs_look_at_the_server_again(
    redis: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, allowed: bool
) -> None:
    """One that begins to evict is told while they run, unless that is allowed."""
    monkeypatch.setattr("ghostless.jobs.watchdog.LOOK_AT_SERVER_AGAIN", 0)
    watchdog = Watchdog(Store(redis, replace(settings, allow_eviction=allowed)))
    watchdog.sweep_all()
    assert not caplog.records
    with evicting(redis):
        watchdog.sweep_all()
    assert allowed != ("look_at_server: Redis: it evicts keys" in caplog.text)


def test_a_look_at_the_server_that_fails_hides_no_repair(
    stage: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the continuous audit repaired stands in the log, although the server did not answer the next question."""

    def fail(*_: object, **__: object) -> list[Finding]:
        raise RedisUnavailable(ConnectionError("gone"))

    put(stage, State.PROCESSING)
    stage.redis.zrem(stage.keys.deadlines, ID)
    monkeypatch.setattr("ghostless.jobs.watchdog.preflight", fail)
    with caplog.at_level(logging.INFO), pytest.raises(RedisUnavailable):
        Watchdog(stage.store).sweep_all()
    assert f"audit: {stage.keys.task(ID)}: it is PROCESSING" in caplog.text
    assert [] == audit(stage.redis, stage.keys, [ID])


def test_parked_types_are_told(stage: Scene, examine: Callable[..., list[Problem]]) -> None:
    """A type that a queue's set names without any parked task."""
    put(stage, State.PENDING)
    stage.redis.sadd(stage.keys.parked_types(QUEUE), TYPE)
    assert ["c"] == [problem.rule for problem in examine(BY_PERSON)]
    assert not stage.redis.exists(stage.keys.parked_types(QUEUE))


@pytest.mark.parametrize("sort", sorted(REMADE))
def test_a_note_of_a_wrong_kind_is_removed_and_made_anew(
    stage: Scene, examine: Callable[..., list[Problem]], sort: str
) -> None:
    """With an end it would stand in the way until that: a worker whose last claim cannot be read starts nothing."""
    names = {"claim": stage.keys.claim(WORKER), "wake": stage.keys.wake(QUEUE)}
    name = names.get(sort) or getattr(stage.keys, sort)
    stage.redis.sadd(name, "junk")
    stage.store.submit(submission())
    assert ["repaired"] == [problem.outcome for problem in examine(BY_PERSON) if name in problem.what]
    assert not stage.redis.exists(name)
    assert [] == examine()
    assert ID == claimed(stage.store).held.task_id
