"""How long the JavaScript client waits when a server is away: by the requests that its page sent, seen by a proxy."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import pytest
from following import Follower
from ghostless.jobs.client import Client
from helpers import eventually, expect
from http_proxy import BAD_GATEWAY, Asked, HttpProxy, Rules
from playwright.sync_api import Page
from web_tools import Hand, submitted

FIRST, MOST = 0.025, 0.8
"""Seconds of the ceilings of a pause after a failure: the first, and the most."""

FAILURES = 6
"""Those after which the most is reached."""

EARLY = 0.01
"""Seconds by which clocks of two processes may differ over a pause."""

TIMING = {"backoffFirst": 1000 * FIRST, "backoffMost": 1000 * MOST, "patience": 60_000}

CHANCE = """() => {
    window.drawn = [];
    window.chance = null;
    const draw = Math.random;
    Math.random = () => {
        const value = window.chance ?? draw();
        window.drawn.push(value);
        return value;
    };
}"""
"""Notes what is drawn, or draws what the test says."""


@dataclass(frozen=True)
class Way:
    """How a page follows tasks, what the proxy lets through for that, and what each attempt then begins with."""

    name: str
    rules: Rules
    status: str
    is_begun_by: Callable[[Asked], bool]
    is_in_use: Callable[[Asked], bool]

    def __str__(self) -> str:
        return self.name


def is_short(asked: Asked) -> bool:
    """Tell whether a task is asked for, and the answer not held."""
    return asked.is_api and not asked.is_stream and not asked.is_held


WAYS = (
    Way("stream", Rules(), "live", lambda asked: asked.is_stream, lambda asked: asked.is_stream),
    Way("long poll", Rules(refuses_streams=True), "polling", is_short, lambda asked: asked.is_held),
    Way("polling", Rules(refuses_streams=True, refuses_holding=True), "polling", is_short, is_short),
)


@dataclass
class Outage:
    """The time in which a proxy answers 502 in the server's place."""

    proxy: HttpProxy
    way: Way

    def __post_init__(self) -> None:
        self.proxy.rules = replace(self.way.rules, refuses=BAD_GATEWAY)
        self._before, self._began = len(self.proxy.asked), time.monotonic()
        self.proxy.cut()

    @property
    def pauses(self) -> list[float]:
        """The seconds between the last request of each attempt and the first one of the next."""
        asked = [one for one in self.proxy.asked[self._before :] if one.is_api]
        starts = [number for number, one in enumerate(asked) if self.way.is_begun_by(one)]
        first = [asked[0].at - self._began] if self.way.name == "stream" and asked else []  # the cut was a failure
        return first + [asked[number].at - asked[number - 1].at for number in starts if number]

    def end(self, follower: Follower) -> None:
        """Let the server be there again, until the page follows it in its way."""
        before = len(self.proxy.asked)
        self.proxy.rules = self.way.rules
        follower.awaits_status(self.way.status)
        eventually(lambda: expect(any(map(self.way.is_in_use, self.proxy.asked[before:]))), 20)


def ceiling(failures: int) -> float:
    """Return the most seconds that a pause after so many failures takes."""
    return min(MOST, FIRST * 2**failures)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_pauses_grow_by_chance_and_are_short_again_after_an_answer(
    page: Page, proxy: HttpProxy, client: Client, hand: Hand, way: Way
) -> None:
    """Each is what was drawn of a ceiling that doubles up to the most; one answer, and it begins anew."""
    task_id = submitted(client)
    page.add_init_script(f"({CHANCE})()")
    proxy.rules = way.rules
    follower = Follower(page, proxy.url).follow([task_id], timing=TIMING)
    follower.awaits_status(way.status)
    eventually(lambda: expect(any(map(way.is_in_use, proxy.asked))), 20)
    page.evaluate("window.drawn.length = 0")
    outage = Outage(proxy, way)
    eventually(lambda: expect(len(outage.pauses) >= FAILURES), 20)
    drawn = page.evaluate("window.chance = 1, window.drawn")
    pauses = outage.pauses[:FAILURES]
    print(drawn, pauses)
    planned = [chance * ceiling(failures) for failures, chance in enumerate(drawn[:FAILURES])]
    assert FAILURES == len(set(drawn[:FAILURES]))
    assert [] == [pause for pause, least in zip(pauses, planned, strict=True) if pause < least - EARLY]
    assert median(pause - least for pause, least in zip(pauses, planned, strict=True)) < MOST / 2
    eventually(lambda: expect(len(outage.pauses) >= FAILURES + 3), 20)
    longest = outage.pauses[FAILURES + 2]
    assert longest >= MOST - EARLY
    outage.end(follower)
    again = Outage(proxy, way)
    eventually(lambda: expect(len(again.pauses) >= 3), 20)
    print(longest, again.pauses)
    assert again.pauses[0] < longest / 2
    assert all(pause >= ceiling(failures) - EARLY for failures, pause in enumerate(again.pauses[:3]))
    again.end(follower)
    hand.run()
    follower.awaits_end(client, task_id)
