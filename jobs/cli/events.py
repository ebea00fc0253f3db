"""A client of the server-sent events: one stream for many tasks, taken up again where it broke off."""

import json
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import requests

SILENCE = 40.0
"""Seconds without a byte after which the connection counts as dead; the server gives a sign of life every 15."""


@dataclass(frozen=True, slots=True)
class Event:
    """One block of a stream. `name` is "" for one that only moves the cursor; `retry` is ms."""

    name: str
    data: dict[str, Any]
    id: str | None = None
    retry: int | None = None


END = Event("end", {})


def parse(lines: Iterable[bytes]) -> Iterator[Event]:
    """Read blocks as the HTML standard says; a block that the connection cut off is dropped."""
    fields: dict[str, str] = {}
    for raw in lines:
        line = raw.decode()
        if not line:
            yield from _event(fields)
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value


def _event(fields: dict[str, str]) -> Iterator[Event]:
    if fields:
        retry = fields.get("retry", "")
        data = json.loads(fields.get("data", "{}"))
        yield Event(fields.get("event", ""), data, fields.get("id"), int(retry) if retry.isdigit() else None)


class Follower:
    """Follows tasks in a thread of its own; `events` has what came since the last look."""

    def __init__(self, url: str, task_ids: Sequence[str]) -> None:
        self._url, self._task_ids = url, task_ids
        self._last_id: str | None = None
        self._pause = 2.0
        self._closed = threading.Event()
        self._inbox = queue.SimpleQueue[Event | Exception]()
        threading.Thread(target=self._follow, name="events", daemon=True).start()

    def close(self) -> None:
        """Do not connect again."""
        self._closed.set()

    def events(self, seconds: float) -> Iterator[Event]:
        """Yield what came, waiting at most this long for the first. Raises what a refusal of the server raises."""
        with suppress(queue.Empty):
            item = self._inbox.get(timeout=seconds)
            while True:
                if isinstance(item, Exception):
                    raise item
                yield item
                item = self._inbox.get_nowait()

    def _follow(self) -> None:
        while not self._closed.is_set():
            try:
                if self._listen():
                    self._inbox.put(END)
                    return
            except requests.HTTPError as error:
                self._inbox.put(error)
                return
            except (requests.RequestException, ValueError):
                pass  # cut off: come back as if nothing had been lost, for nothing is
            self._closed.wait(self._pause)

    def _listen(self) -> bool:
        """Pass on what one connection brings; True at the end of the story."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": self._last_id} if self._last_id else {})
        wanted = [("task", task_id) for task_id in self._task_ids]
        with requests.get(self._url, wanted, headers=headers, stream=True, timeout=(5, SILENCE)) as response:
            if response.status_code == 204:
                return True
            if response.status_code < 500:
                response.raise_for_status()
            for event in parse(response.iter_lines(chunk_size=None)):  # type: ignore[arg-type]
                self._note(event)
                if event.name == "end":
                    return True
        return False

    def _note(self, event: Event) -> None:
        self._last_id = event.id if event.id is not None else self._last_id
        self._pause = event.retry / 1000 if event.retry is not None else self._pause
        if event.name not in ("", "end"):
            self._inbox.put(event)
