"""The table as data, as a graph, and as a picture."""

import pytest
from ghostless.statemachine import (
    ALREADY,
    FINAL,
    INITIAL,
    RUNNING,
    STORED,
    TABLE,
    TRANSIENT,
    UNRECORDED,
    WAITING_FOR_TIME,
    Event,
    State,
    Verdict,
    diagram,
    graph,
    judge,
)

DESIGN = {
    Event.RELEASE: {"SCHEDULED": "PENDING", "BLOCKED": "PENDING", "RETRY_WAITING": "PENDING"},
    Event.START: {"PENDING": "PROCESSING"},
    Event.HEARTBEAT: {"PROCESSING": "PROCESSING", "PAUSING": "PAUSING", "CANCELLING": "CANCELLING"},
    Event.PROGRESS: {"PROCESSING": "PROCESSING", "PAUSING": "PAUSING", "CANCELLING": "CANCELLING"},
    Event.STAGE: {"PROCESSING": "PROCESSING", "PAUSING": "PAUSING"},
    Event.COMPLETE: {"PROCESSING": "SUCCESS", "PAUSING": "SUCCESS", "CANCELLING": "CANCELLED"},
    Event.FAIL: {"PROCESSING": "FAILED", "PAUSING": "FAILED", "CANCELLING": "CANCELLED"},
    Event.TIMEOUT: {"PROCESSING": "TIMEOUT", "PAUSING": "PAUSED", "CANCELLING": "CANCELLED"},
    Event.RETRY: {
        "FAILED": "RETRY_WAITING",
        "TIMEOUT": "RETRY_WAITING",
        "TIMEOUT_CANCELLED": "RETRY_WAITING",
    },
    Event.GIVE_UP: {"TIMEOUT": "TIMEOUT_CANCELLED"},
    Event.CANCEL: {
        **dict.fromkeys(("SCHEDULED", "BLOCKED", "PENDING", "RETRY_WAITING", "PAUSED"), "CANCELLED"),
        **dict.fromkeys(("PROCESSING", "PAUSING"), "CANCELLING"),
    },
    Event.STOPPED: {"CANCELLING": "CANCELLED"},
    Event.PAUSE: {"PENDING": "PAUSED", "RETRY_WAITING": "PAUSED", "PROCESSING": "PAUSING"},
    Event.SUSPEND: {"PROCESSING": "PAUSED", "PAUSING": "PAUSED", "CANCELLING": "CANCELLED"},
    Event.RESUME: {"PAUSED": "PENDING", "PAUSING": "PROCESSING"},
    Event.REQUEUE: {"PENDING": "PENDING"},
    Event.REPAIR: {state: state for state in STORED},
}
"""The arrows of the design, typed a second time on purpose."""


def test_the_table_is_that_of_the_design() -> None:
    """Every arrow of the design is there, and no other."""
    arrows = {(source, event): target for event, pairs in DESIGN.items() for source, target in pairs.items()}
    assert arrows == TABLE
    assert {"PENDING", "SCHEDULED", "BLOCKED"} == INITIAL


def test_the_table_cannot_be_changed() -> None:
    """Nobody adds an arrow at run time."""
    with pytest.raises(TypeError):
        TABLE[State.SUCCESS, Event.START] = State.PROCESSING  # type: ignore[index]


def test_the_groups_of_states_fit_together() -> None:
    """Final, running and waiting states are different ones, and every state but the passing one is stored."""
    assert {"SUCCESS", "FAILED", "TIMEOUT_CANCELLED", "CANCELLED"} == FINAL
    assert {"PROCESSING", "PAUSING", "CANCELLING"} == RUNNING
    assert {"SCHEDULED", "RETRY_WAITING"} == WAITING_FOR_TIME
    assert set() == FINAL & RUNNING | RUNNING & WAITING_FOR_TIME | WAITING_FOR_TIME & FINAL
    assert set(State) == {*STORED} | TRANSIENT


def test_unrecorded_events_never_move_a_task() -> None:
    """What leaves no entry in the history must not change the state, or the history would not replay."""
    assert [] == [arrow for arrow, target in TABLE.items() if arrow[1] in UNRECORDED and arrow[0] is not target]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_judge_is_the_table(state: State, event: Event) -> None:
    """`moved` with the target for an arrow; else the same state, with `already` or `refused`."""
    verdict, after = judge(state, event)
    if (state, event) in TABLE:
        assert (Verdict.MOVED, TABLE[state, event]) == (verdict, after)
    else:
        assert (Verdict.ALREADY if (state, event) in ALREADY else Verdict.REFUSED, state) == (verdict, after)


def test_a_cancel_is_never_refused() -> None:
    """Whatever state a stored task is in, CANCEL moves it or was answered before."""
    assert {Verdict.MOVED, Verdict.ALREADY} == {judge(state, Event.CANCEL)[0] for state in STORED}


def test_a_cancelled_task_never_comes_back() -> None:
    """No chain of events leads out of CANCELLED, and from CANCELLING only there."""
    assert {State.CANCELLED} == graph.reachable(TABLE, [State.CANCELLED])
    assert {State.CANCELLING, State.CANCELLED} == graph.reachable(TABLE, [State.CANCELLING])


# The graph check


def test_the_graph_has_no_problem() -> None:
    """The table, as it is, is sound."""
    assert [] == graph.problems()


def without(*arrows: tuple[State, Event]) -> dict:
    """Return the table without some arrows."""
    return {arrow: target for arrow, target in TABLE.items() if arrow not in arrows}


BROKEN = [
    (without((State.PENDING, Event.START)), "PROCESSING cannot be reached"),
    (without((State.TIMEOUT, Event.RETRY), (State.TIMEOUT, Event.GIVE_UP)), "TIMEOUT has no way to a final state"),
    (without((State.PAUSED, Event.RESUME), (State.PAUSED, Event.CANCEL)), "PAUSED has no way to a final state"),
    ({**TABLE, (State.SUCCESS, Event.START): State.PROCESSING}, "SUCCESS is final, and START leads out of it"),
    (without((State.PROCESSING, Event.TIMEOUT)), "PROCESSING is to be moved on by TIMEOUT, which is not in the table"),
    (without((State.BLOCKED, Event.RELEASE)), "BLOCKED is to be moved on by RELEASE, which is not in the table"),
    (without((State.SCHEDULED, Event.CANCEL)), "SCHEDULED cannot be cancelled"),
    ({**TABLE, (State.PENDING, Event.RELEASE): State.PENDING}, "PENDING RELEASE is both a move and already so"),
]


@pytest.mark.parametrize(("table", "problem"), BROKEN, ids=[problem for _, problem in BROKEN])
def test_the_graph_check_finds_a_broken_table(table: dict, problem: str) -> None:
    """Each rule, broken, is named in a sentence."""
    assert problem in graph.problems(table)


def test_the_graph_check_finds_a_state_that_nothing_moves() -> None:
    """A stored state without a driver, or a driver of a state that is never stored."""
    drivers = {state: text for state, text in graph.DRIVERS.items() if state is not State.PAUSED}
    driving = {state: event for state, event in graph.DRIVING_EVENTS.items() if state is not State.PENDING}
    found = graph.problems(drivers={**drivers, State.TIMEOUT: "nobody"}, driving=driving)
    expected = [
        "nothing is said to move PAUSED on",
        "TIMEOUT is never stored, and yet has a driver",
        "no event moves PENDING on by itself",
    ]
    assert expected == found


def test_a_driver_is_one_line() -> None:
    """What moves a state is said in words that fit into a table of the documentation."""
    assert {*STORED} == graph.DRIVERS.keys()
    assert [] == [text for text in graph.DRIVERS.values() if "\n" in text or not 20 < len(text) < 100]


# The pictures


def test_the_diagrams_show_every_arrow_once() -> None:
    """Each pair of states has one line, which names all its events; arrows to the same state are left out."""
    drawn = {(source, target, event) for source, target, label in diagram.arrows() for event in label.split(", ")}
    assert {(source, target, event) for (source, event), target in TABLE.items() if source is not target} == drawn
    pairs = [(source, target) for source, target, _ in diagram.arrows()]
    assert len(set(pairs)) == len(pairs)


def test_the_mermaid_diagram_marks_where_a_life_begins_and_ends() -> None:
    """Entries from the start mark for SUBMIT, exits to the end mark for final states, which have a class."""
    lines = [line.strip() for line in diagram.mermaid().splitlines()]
    assert "stateDiagram-v2" == lines[0]
    assert {f"[*] --> {state}: SUBMIT" for state in INITIAL} == {line for line in lines if line.startswith("[*]")}
    assert {f"{state} --> [*]" for state in FINAL} == {line for line in lines if line.endswith("[*]")}
    assert "PROCESSING --> FAILED: FAIL" in lines
    assert "class SUCCESS,FAILED,TIMEOUT_CANCELLED,CANCELLED final" in lines
    assert "class TIMEOUT passing" in lines
    assert [] == [
        line for line in lines if (arrow := line.split(" --> "))[0] == arrow[-1].split(":")[0] and len(arrow) > 1
    ]


def test_the_dot_diagram_marks_final_and_passing_states() -> None:
    """Final states have a double border, the passing one a dashed border, and the text is a whole digraph."""
    text = diagram.dot()
    assert text.startswith("digraph task {\n")
    assert text.endswith("}\n")
    assert text.count("{") == text.count("}") == 1
    assert {*FINAL} == {line.split()[0] for line in text.splitlines() if "peripheries=2" in line}
    assert '    TIMEOUT [style="rounded,dashed"];' in text
    assert '    CANCELLING -> CANCELLED [label="COMPLETE, FAIL, TIMEOUT, STOPPED, SUSPEND"];' in text


def test_the_diagrams_are_the_same_every_time() -> None:
    """Two renderings are equal, so that a committed diagram can be compared."""
    assert (diagram.mermaid(), diagram.dot()) == (diagram.mermaid(), diagram.dot())
    assert list(diagram.arrows()) == sorted(diagram.arrows(), key=lambda arrow: [*map(list(State).index, arrow[:2])])
