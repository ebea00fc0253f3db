"""The bytes of an event stream, and the cursors in them."""

import json

import pytest
from ghostless.jobs.model import Entry
from ghostless.web.cursors import Cursor, from_text, to_text
from ghostless.web.frames import RECONNECT, Live, Moment, bookmark, frame, opening, retry

HOSTILE = ["a\rb", "a\nb", "a\r\nb", "a\0b", "\n", "x\n\ndata: forged"]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["id", "event"])
def test_encoder_refuses_what_would_end_a_line(field: str, text: str) -> None:
    """No CR, LF or NUL gets into an id or an event name: each would let a value forge fields or whole events."""
    with pytest.raises(ValueError, match="CR, LF or NUL"):
        frame(**{"event": "task", "data": {}, field: text})


@pytest.mark.parametrize("text", [*HOSTILE, "a\u2028b\u2029c\x85d\x0be\x0cf", "\ud800", "</script>", "ü\U0001f600"])
def test_data_is_one_line_of_json_whatever_is_in_it(text: str) -> None:
    """The data of an event is a single ASCII line which reads back as what went in."""
    block = frame(event="log", data={"line": text})
    lines = block.decode("ascii").split("\n")
    assert ["event: log", lines[1], "", ""] == lines
    assert {"line": text} == json.loads(lines[1].removeprefix("data: "))
    assert b"\r" not in block


def test_data_that_is_no_json_is_refused() -> None:
    """NaN is not JSON; a browser's JSON.parse would throw on it."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        frame(event="progress", data={"progress": float("nan")})


def test_a_block_with_only_an_id_moves_the_cursor_and_fires_nothing() -> None:
    """Bookmarks and the first block carry an id and no data."""
    place = str(Cursor("ab12", (1795, 3)))
    assert b"id: ab12.1795-3\n\n" == frame(id=place)
    assert bookmark(place).startswith(b": ")
    assert bookmark(place).endswith(b"\nid: ab12.1795-3\n\n")


def test_the_first_block_says_when_to_come_back_and_from_where() -> None:
    """The delay is jittered, so that clients of a restarted server do not come back all at once."""
    delays = {int(retry().split()[1]) for _ in range(300)}
    assert RECONNECT[0] <= min(delays) < max(delays) <= RECONNECT[1]
    assert len(delays) > 100
    first = opening(str(Cursor("ab12", (7, 0)))).decode()
    assert first.startswith("retry: ")
    assert first.endswith("\nid: ab12.7-0\n\n")
    assert 3 == first.count("\n")


@pytest.mark.parametrize("text", ["ab12.5-0", "k3f9.1795987574394-18446744073709551615", "0.0-0"])
def test_a_cursor_reads_back_as_itself(text: str) -> None:
    """What a client sends back is what it was given."""
    assert text == str(Cursor.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ".",
            "ab12",
            "ab12.",
            "ab12.5",
            "ab12.5-",
            "ab12.-5",
            "ab12.5-0 ",
            " ab12.5-0",
            "ab12.5-0\n",
            "ab12.5_0-0",
        ),
        *("ab12.+5-0", "ab12.18446744073709551616-0", "ab12.5-99999999999999999999", "ab 12.5-0", "a" * 33 + ".5-0"),
        *("ab12.٣-0", "../x.5-0", "ab12.5-0.5-0", "x" * 5000),
    ],
)
def test_garbage_is_no_cursor(text: str) -> None:
    """Anything else is told apart, so that the client can be told to fetch anew."""
    assert Cursor.parse(text) is None


def test_entry_ids_order_as_redis_orders_them() -> None:
    """Ids compare as numbers: as text, 10 would come before 9."""
    assert from_text("9-2") < from_text("9-10") < from_text("10-0")
    assert "9-10" == to_text(from_text("9-10"))


def test_a_move_is_shown_as_the_task_it_moved() -> None:
    """The data of `task` is the move's public view: the task's id and the state that it is in since."""
    entry = Entry(
        "1700-4", "t1", "FAIL", "PROCESSING", "FAILED", 2, "worker:w", "exception", "boom", "work", "q", "ann"
    )
    lines = Moment(entry).frame("e1").decode().split("\n")
    assert ["id: e1.1700-4", "event: task"] == lines[:2]
    assert {
        "id": "t1", "type": "work", "queue": "q", "owner": "ann", "state": "FAILED", "from": "PROCESSING",
        "event": "FAIL", "attempt": 2, "reason": "exception", "message": "boom", "actor": "worker:w", "at": 1700,
    } == json.loads(lines[2].removeprefix("data: "))  # fmt: skip


def test_a_move_is_encoded_once_for_all_and_anew_for_another_epoch() -> None:
    """All listeners share the bytes of an event; they name the epoch, so another epoch has other bytes."""
    moment = Moment(Entry("1-0", "t", "SUBMIT", "", "PENDING", 0, "a", "user"))
    assert moment.frame("e1") is moment.frame("e1")
    assert moment.frame("e2").startswith(b"id: e2.1-0\n")


def test_live_messages_have_no_id() -> None:
    """Progress and log lines cannot be replayed, so they must not move a client's cursor."""
    live = Live({"kind": "progress", "id": "t", "type": "work", "queue": "q", "progress": 0.5, "message": "half"})
    assert b"id:" not in live.frame.split(b"data:")[0]
    assert live.frame.startswith(b"event: progress\n")


@pytest.mark.parametrize(
    "message", [{}, {"kind": "task", "id": "t"}, {"kind": "log"}, {"kind": "log\n", "id": "t"}, {"kind": 5, "id": "t"}]
)
def test_other_messages_are_refused(message: dict[str, object]) -> None:
    """Whatever else is published on the channel is not passed on as an event."""
    with pytest.raises((KeyError, ValueError)):
        Live(message)
