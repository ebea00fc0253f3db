"""Every event in every state, by the script that carries it, on a real Redis and inside this process."""

import pytest
from audit import audit
from ghostless.jobs.keys import Keys, script_names
from ghostless.lua import loader
from ghostless.statemachine import RUNNING, STORED, TABLE, Event, State, Verdict, judge
from redis import Redis
from scripts.seeding import BY_PERSON, CARRIERS, ID, Carrier, Scene, ever_held, fire, put, scene
from scripts.snapshot import difference, snapshot

Steps = list[tuple[str, str, str]]

CHAINS: dict[tuple[State, Event], Steps] = {
    (State.PROCESSING, Event.FAIL): [("FAIL", "PROCESSING", "FAILED"), ("RETRY", "FAILED", "RETRY_WAITING")],
    (State.PROCESSING, Event.TIMEOUT): [("TIMEOUT", "PROCESSING", "TIMEOUT"), ("RETRY", "TIMEOUT", "RETRY_WAITING")],
    (State.PROCESSING, Event.SUSPEND): [("SUSPEND", "PROCESSING", "PAUSED"), ("RESUME", "PAUSED", "PENDING")],
    (State.PAUSING, Event.FAIL): [
        ("FAIL", "PAUSING", "FAILED"),
        ("RETRY", "FAILED", "RETRY_WAITING"),
        ("PAUSE", "RETRY_WAITING", "PAUSED"),
    ],
}
"""Moves of several steps, for a task whose budgets are not used up."""

UNSEEN = {Event.HEARTBEAT, Event.PROGRESS}
WATCHDOG, CLAIMING = {"release", "sweep", "requeue"}, {"claim", "start"}
WORKER = {"finish", "heartbeat", "progress", "checkpoint", "log", "stage", "lose"}

CASES = [
    pytest.param(state, event, carrier, id=f"{state}-{event}-{carrier.verb}")
    for event, carriers in CARRIERS.items()
    for carrier in carriers
    for state in STORED
    if (state, event) != (State.BLOCKED, Event.RELEASE)
]


def steps(state: State, event: Event) -> Steps:
    """Return the entries that an event adds to the history of a task in a state."""
    if event in UNSEEN:
        return []
    return CHAINS.get((state, event), [(event, state, TABLE[state, event])])


def word(state: State, event: Event, carrier: Carrier) -> str:
    """Return the word of the answer: the table's, but for those who are not asked for the table's."""
    verdict, _ = judge(state, event)
    if carrier.verb == "submit":
        return "already"
    if carrier.verb in WATCHDOG:
        return "moved" if verdict is Verdict.MOVED else "kept"
    if carrier.verb in CLAIMING:
        return "claimed" if verdict is Verdict.MOVED else "empty" if carrier.verb == "claim" else "refused"
    if carrier.verb in WORKER and state not in RUNNING:
        return "already" if ever_held(state) else "stale"
    return verdict


@pytest.mark.parametrize(("state", "event", "carrier"), CASES)
def test_every_event_in_every_state(backend: Redis, state: State, event: Event, carrier: Carrier) -> None:
    """The script's verdict is the table's; a move is whole and well placed, anything else changes no byte."""
    stage = scene(backend)
    put(stage, state)
    before, history = snapshot(backend), stage.history
    carrier.prepare(stage)
    answer = fire(stage, carrier)
    assert word(state, event, carrier) == answer
    if judge(state, event)[0] is Verdict.MOVED:
        expected = steps(state, event)
        assert history + expected == stage.history
        assert (expected[-1][2] if expected else state) == stage.task["state"]
        assert [] == audit(backend, stage.keys, [ID])
    else:
        assert {} == difference(quiet(stage, carrier, before), quiet(stage, carrier, snapshot(backend)))


def quiet(stage: Scene, carrier: Carrier, picture: dict) -> dict:
    """Leave out the sweep's own trace, and the hints that a claim takes from an empty queue."""
    traces = {"sweep": stage.keys.watchdog, "claim": stage.keys.wake("q")}
    return {key: content for key, content in picture.items() if key != traces.get(carrier.verb)}


def test_the_scripts_judge_as_the_table_does(backend: Redis) -> None:
    """Lua's verdict on every state, the passing one included, and every event is that of `judge`."""
    pairs = [(state, event) for state in State for event in Event]
    arguments = [text for pair in pairs for text in pair]
    body = "local words = {} for i = 1, #ARGV, 2 do words[#words + 1] = verdict(ARGV[i], ARGV[i + 1]) end return words"
    answers = backend.eval(by_hand(body), 0, *arguments)
    assert [str(judge(state, event)[0]) for state, event in pairs] == answers


def by_hand(body: str, *parts: str) -> str:
    """Return a script of the product's own parts, for an event that no verb carries alone."""
    return loader.build(body, script_names(Keys()), *parts)


@pytest.mark.parametrize(
    ("state", "event"), [(State.BLOCKED, Event.RELEASE), *((state, Event.GIVE_UP) for state in STORED)]
)
def test_events_that_no_verb_carries_alone(backend: Redis, state: State, event: Event) -> None:
    """RELEASE frees a blocked task; GIVE_UP, which only follows TIMEOUT, is refused in every stored state."""
    stage = scene(backend)
    put(stage, state)
    before = snapshot(backend)
    body = "return ask(ARGV[1], ARGV[2], ARGV[3], Reason.DEPENDENCY, '')"
    answer = backend.eval(by_hand(body, "person"), 0, ID, event, BY_PERSON)
    assert judge(state, event)[0] == answer[0]
    if (state, event) in TABLE:
        assert TABLE[state, event] == stage.task["state"]
        assert [] == audit(backend, stage.keys, [ID])
    else:
        assert {} == difference(before, snapshot(backend))


def test_the_grid_is_whole() -> None:
    """Every event but GIVE_UP has a script that carries it, and every verb is tried."""
    assert set(Event) - {Event.GIVE_UP} == CARRIERS.keys()
    tried = {carrier.verb for carriers in CARRIERS.values() for carrier in carriers}
    others = {
        *("purge", "put_back", "unpark", "settle", "recheck", "unnamed", "recount"),
        *("subscribe", "listen", "dismiss", "dispatch", "revise", "note_worker"),
        *("begin_bulk", "work_bulk", "stop_bulk"),
    }  # no event of the task
    assert set(loader.VERBS) == tried | others
