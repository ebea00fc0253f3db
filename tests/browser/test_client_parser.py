"""The client's parser of server-sent events: what the browser's own makes of the same bytes, however they are cut."""

from typing import Any

import pytest
from chromium import open_empty
from playwright.sync_api import Page
from web_tools import Served

RECORDED = (
    b"\xef\xbb\xbfretry: 2345\nid: e1.0-0\n\n"
    b": a comment\n\n"
    b'id: e1.7-0\nevent: task\ndata: {"message":"gr\xc3\xbc\xc3\x9fe \xe2\x82\xac \xf0\x9f\x91\xbb"}\n\n'
    b"event: task\r\ndata: one\r\ndata:two\r\ndata:  three\r\ndata\r\n\r\n"
    b"id: e1.8-0\rdata: only CR\r\r"
    b"id: e1.9-0\n\n"  # no event, but the cursor moves
    b"event: task\n\n"  # no data, so no event
    b"id: with\0nul\ndata: keeps the id\n\n"
    b"retry: soon\nunknown: field\ndata:\n\n"
    b"\xef\xbb\xbfdata: no mark here, so no field\n\n"
    b"id\ndata: the id is taken back\n\n"
    b"id: e1.10-0\nevent: task\ndata: cut off before its end\n"
)

EVENTS = [
    ["task", '{"message":"grüße € 👻"}', "e1.7-0"],
    ["task", "one\ntwo\n three\n", "e1.7-0"],
    ["message", "only CR", "e1.8-0"],
    ["message", "keeps the id", "e1.9-0"],
    ["message", "", "e1.9-0"],
    ["message", "the id is taken back", ""],
]

PARSE = """async (bytes) => {
    const { EventParser } = await import("/static/client/parser.js");
    const whole = Uint8Array.from(bytes);
    const parse = (...pieces) => {
        const parser = new EventParser();
        const events = pieces.flatMap((piece) => parser.push(piece)).map(({ event, data, id }) => [event, data, id]);
        return [events, parser.lastEventId, parser.retry];
    };
    const same = (one) => JSON.stringify(one) === JSON.stringify(parse(whole));
    const wrong = [];
    for (let at = 0; at <= whole.length; at += 1) {
        const rest = whole.subarray(at);
        if (!same(parse(whole.subarray(0, at), rest))) wrong.push(at);
        if (!same(parse(whole.subarray(0, at), rest.subarray(0, 1), rest.subarray(1)))) wrong.push(at);
    }
    if (!same(parse(...[...whole].map((byte) => Uint8Array.of(byte))))) wrong.push("every byte");
    return [parse(whole), wrong];
}"""

NATIVE = """() => new Promise((resolve) => {
    const source = new EventSource("/recorded"), events = [];
    const note = ({ type, data, lastEventId }) => events.push([type, data, lastEventId]);
    source.addEventListener("task", note);
    source.addEventListener("message", note);
    source.addEventListener("error", () => { source.close(); resolve(events); });
})"""


@pytest.fixture
def here(page: Page, served: Served) -> Page:
    """A page of the server."""
    open_empty(page, served.url)
    return page


def test_events_are_whole_wherever_their_bytes_are_cut(here: Page) -> None:
    """Between CR and LF, within a character, within the byte order mark: every cut gives the same events."""
    (events, last_event_id, retry), wrong = here.evaluate(PARSE, list(RECORDED))
    assert EVENTS == events
    assert ("", 2345) == (last_event_id, retry)  # the block that was cut off is none
    assert [] == wrong


def test_events_are_those_that_the_browser_makes_of_them(here: Page) -> None:
    """EventSource reads the same bytes alike."""
    here.route("**/recorded", lambda route: route.fulfill(content_type="text/event-stream", body=RECORDED))
    assert EVENTS == here.evaluate(NATIVE)


STORY = """async ([known, cases]) => {
    const { Story } = await import("/static/client/story.js");
    const moves = (cursors) => cursors.map((cursor) => ({ cursor }));
    return cases.map(([then, since]) => {
        const story = new Story(), told = [];
        story.takesWhole(moves(known), null);
        if (!Array.isArray(then)) return story.takes({ cursor: then }) ? [then] : [];
        const { isAnew, news } = story.takesWhole(moves(then), since);
        return [...(isAnew ? ["anew"] : []), ...news.map(({ cursor }) => cursor)];
    });
}"""

KNOWN = ["e.5-0", "e.5-1", "e.10-0"]

LARGEST = "e.18446744073709551615-18446744073709551615"

# What comes then, since when it is true, and what is told.
CASES: list[tuple[Any, str | None, list[str]]] = [
    ("e.10-1", None, ["e.10-1"]),
    ("e.10-0", None, []),
    ("e.9-99", None, []),
    (LARGEST, None, [LARGEST]),
    (["e.5-0"], "e.5-0", []),  # read before the other two were known
    ([*KNOWN, "e.11-0"], "e.5-1", ["e.11-0"]),
    ([*KNOWN, "e.11-0"], None, ["e.11-0"]),
    (["f.1-0"], None, []),  # of a tab that was asleep
    (["e.5-0"], "e.10-0", ["anew", "e.5-0"]),  # Redis came back older
    (["f.1-0"], "e.10-0", ["anew", "f.1-0"]),  # another database
]


def test_what_is_known_never_goes_backwards(here: Page) -> None:
    """A move is told once and in order; only a history that was asked for later can take back what was told."""
    told = here.evaluate(STORY, [KNOWN, [[then, since] for then, since, _ in CASES]])
    assert [expected for _, _, expected in CASES] == told
