"""What a script answers of a task that it started: read into what its worker gets."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from ..statemachine import Event, Reason
from .errors import CorruptRecord
from .messages import Claimed, Ending, Held
from .model import Task
from .scripts import translate
from .values import not_json

log = logging.getLogger("ghostless")

Text = str | RedisError | None
"""A value as it stands in Redis; the error in its place when it cannot be read."""


@dataclass(frozen=True, slots=True)
class Started:
    """An attempt that a script just started. Its values may be damaged, the right to end it is not."""

    held: Held
    stored: Mapping[str, str]
    params: Text
    checkpoint: Text
    dependencies: Sequence[str] | RedisError
    results: Sequence[Text] | int

    @classmethod
    def read(cls, reply: Sequence[Any]) -> "Started":
        """Read the reply `claimed` of a script; a task of its own has no dependencies in it."""
        flat, task_id, params, checkpoint, *dependencies = reply[1:]
        stored = dict(zip(flat[::2], flat[1::2], strict=True))
        held = Held(task_id, int(stored["attempt"]), stored["token"])
        return cls(held, stored, params, checkpoint, *(dependencies or ((), ())))

    @property
    def worker_id(self) -> str:
        """The worker that holds it."""
        return self.stored["worker_id"]

    def claimed(self, asked_at: float) -> Claimed:
        """Return what the worker runs. Raises CorruptRecord when it cannot be run."""
        task = Task.from_fields(self.held.task_id, self.stored)
        params = _read_json("params", self.params)
        return Claimed(self.held, task, params, self._saved(), asked_at, self._returned())

    def _saved(self) -> Any:
        try:
            return _read_json("checkpoint", self.checkpoint)
        except CorruptRecord as error:
            log.warning("task %s starts anew: %s", self.held.task_id, error)
            return None

    def _returned(self) -> Mapping[str, Any] | int:
        if isinstance(self.dependencies, RedisError):
            raise translate(self.dependencies)
        if isinstance(self.results, int):
            return self.results
        found = zip(self.dependencies, self.results, strict=True)
        return {task_id: _read_json(f"result of {task_id}", text) for task_id, text in found if text is not None}


def unreadable(error: CorruptRecord) -> Ending:
    """Return the end of an attempt that no worker can run, or its task would come to each of them in turn."""
    return Ending(Event.FAIL, Reason.INVALID_PARAMS, str(error), str(error), retryable=False)


_decoder = json.JSONDecoder(parse_constant=not_json)  # nor could a frame hold it


def _read_json(what: str, text: Text) -> Any:
    if isinstance(text, RedisError):
        raise translate(text)
    try:
        return None if text is None else _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"{what}: {error}") from error
