"""A page that follows tasks with the JavaScript client, and what it was told."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chromium import open_empty
from ghostless.jobs.client import Client
from helpers import eventually
from playwright.sync_api import Page

FOLLOW = """async ([ids, options]) => {
    const { Client } = await import("/static/client.js");
    const told = window.told = {
        moves: [], progress: [], log: [], resets: [], ends: [], connections: [], finished: null, failed: null,
    };
    window.stop = new AbortController();
    if (options.tokens) options.token = async () => options.tokens.shift();
    window.client ??= new Client(options);
    window.client.watch(ids, {
        signal: window.stop.signal,
        onTask: (move) => told.moves.push(move),
        onProgress: (progress) => told.progress.push(progress),
        onLog: (line) => told.log.push(line),
        onReset: (id) => { told.resets.push(id); told.moves = told.moves.filter((move) => move.id !== id); },
        onEnd: ({ id, state, error }) => told.ends.push({ id, state, status: error?.status ?? null }),
        onConnection: ({ status, age, tasks }) => told.connections.push({ status, age, tasks }),
    }).then(
        (ends) => { told.finished = ends.map(({ id, state }) => [id, state]); },
        (error) => { told.failed = { name: error.name, status: error.status ?? null }; },
    );
}"""

QUICK = {
    "firstByte": 1000, "silence": 20_000, "request": 3000, "reconnect": 100, "backoffFirst": 50, "backoffMost": 300,
    "pollFirst": 50, "pollMost": 100, "streamAgain": 60_000, "beat": 400, "confirm": 200, "patience": 15_000,
}  # fmt: skip
"""The client's times, short enough for tests."""


@dataclass(eq=False)
class Follower:
    """One tab that follows tasks."""

    page: Page
    origin: str

    def follow(self, ids: Sequence[str], **options: Any) -> "Follower":
        """Open the page and start to follow."""
        options["timing"] = QUICK | options.get("timing", {})
        open_empty(self.page, self.origin)
        self.page.evaluate(FOLLOW, [list(ids), options])
        return self

    @property
    def told(self) -> dict[str, Any]:
        """All that the page was told so far."""
        return self.page.evaluate("window.told")

    def entries(self, task_id: str) -> list[str]:
        """The history entries of the moves that the page was told of a task, in its order."""
        return _entries(self.told, task_id)

    def states(self, task_id: str) -> list[str]:
        """The states that the page was told of a task."""
        return [move["state"] for move in self.told["moves"] if move["id"] == task_id]

    def awaits(self, task_id: str, *states: str) -> "Follower":
        """Wait until the page was told these states, and no others."""
        eventually(lambda: _same(list(states), self.states(task_id)), 20)
        return self

    def awaits_status(self, status: str) -> dict[str, Any]:
        """Wait until the page is told that it is connected like this."""

        def last() -> dict[str, Any]:
            connections = self.told["connections"]
            assert connections, "nothing was said of the connection"
            assert status == connections[-1]["status"], connections
            return connections[-1]

        return eventually(last, 20)

    def awaits_end(self, client: Client, *task_ids: str) -> dict[str, Any]:
        """Wait until the watch ends by itself; the page then knows each task's whole history, each move once."""

        def ended() -> dict[str, Any]:
            told = self.told
            assert told["finished"] is not None, told
            return told

        told = eventually(ended, 20)
        for task_id in task_ids:
            assert [entry.id for entry in client.history(task_id)] == _entries(told, task_id)
            assert client.get(task_id).state == dict(told["finished"])[task_id]
        return told


def _entries(told: dict[str, Any], task_id: str) -> list[str]:
    return [move["cursor"].partition(".")[2] for move in told["moves"] if move["id"] == task_id]


def _same(expected: object, actual: object) -> None:
    assert expected == actual
