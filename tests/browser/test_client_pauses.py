"""How long the JavaScript client waits when a server is away: by the requests that its page sent, seen by a proxy."""

import math
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
        window.drawn.push([value, Date.now() / 1000]);
        return value;
    };
}"""
"""Notes what is drawn and when, or draws what the test says."""


@dataclass(frozen=True)
class Way:
    """How a page follows tasks, what the proxy lets through for that, and with what an attempt then begins.

    Before it does so for good it has asked for so many answers that are held.
    """

    name: str
    rules: Rules
    status: str
    is_begun_by: Callable[[Asked], bool]
    held: int

    def __str__(self) -> str:
        return self.name


def is_short(asked: Asked) -> bool:
    """Tell whether a task is asked for, and the answer not held."""
    return asked.is_api and not asked.is_stream and not asked.is_held


WAYS = (
    Way("stream", Rules(), "live", lambda asked: asked.is_stream, held=0),
    Way("long poll", Rules(refuses_streams=True), "polling", is_short, held=1),
    Way("polling", Rules(refuses_streams=True, refuses_holding=True), "polling", is_short, held=2),
)


@dataclass
class Outage:
    """The time in which a proxy answers 502 in the server's place."""

    proxy: HttpProxy
    way: Way

    def __post_init__(self) -> None:
        self._before, self._began = len(self.proxy.refused), time.monotonic()
        self.proxy.rules = replace(self.way.rules, refuses=BAD_GATEWAY)
        self.proxy.cut()

    @property
    def _refused(self) -> list[Asked]:
        # When an answer that is held fails, the page asks at once for a short one: only if that fails too, it waits.
        return [asked for asked in self.proxy.refused[self._before :] if not asked.is_held]

    @property
    def failed_at(self) -> float:
        """When the first attempt failed, by the monotonic clock, or a moment before: an open stream by the cut."""
        return self._began if self.way.name == "stream" else self._refused[0].at

    @property
    def pauses(self) -> list[float]:
        """The seconds between the last request of each attempt and the first one of the next."""
        ended_at, pauses = self._began if self.way.name == "stream" else math.inf, list[float]()
        for asked in self._refused:
            if self.way.is_begun_by(asked) and ended_at < math.inf:
                pauses.append(asked.at - ended_at)
            ended_at = asked.at
        return pauses

    def end(self, follower: Follower) -> None:
        """Let the server be there again, until the page follows it in its way."""
        self.proxy.rules = self.way.rules
        follower.awaits_status(self.way.status)


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
    eventually(lambda: expect(sum(one.is_held for one in proxy.asked) >= way.held), 20)
    outage = Outage(proxy, way)
    eventually(lambda: expect(len(outage.pauses) >= FAILURES), 20)
    since = outage.failed_at + time.time() - time.monotonic()
    drawn = [chance for chance, at in page.evaluate("window.chance = 1, window.drawn") if at >= since]
    pauses = outage.pauses[:FAILURES]
    planned = [chance * ceiling(failures) for failures, chance in enumerate(drawn[:FAILURES])]
    assert FAILURES == len(set(drawn[:FAILURES]))
    assert [] == [pause for pause, least in zip(pauses, planned, strict=True) if pause < least - EARLY]
    assert median(pause - least for pause, least in zip(pauses, planned, strict=True)) < MOST / 2
    eventually(lambda: expect(max(outage.pauses) >= MOST - EARLY), 20)
    longest = max(outage.pauses)
    outage.end(follower)
    again = Outage(proxy, way)
    eventually(lambda: expect(len(again.pauses) >= 3), 20)
    assert again.pauses[0] < longest / 2
    assert all(pause >= ceiling(failures) - EARLY for failures, pause in enumerate(again.pauses[:3]))
    proxy.rules = way.rules
    hand.run()
    follower.awaits_end(client, task_id)
