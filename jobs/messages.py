"""What goes to the scripts and what they answer, as frozen values."""

import random
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..statemachine import Event, Policy, Reason
from .model import Task


@dataclass(frozen=True, slots=True)
class Answer:
    """What a script said: `moved`, `already`, `refused`, `stale`, `conflict`, `purged`, `missing`, `unknown`,
    `unserved` or `damaged`.
    """

    word: str
    task_id: str
    state: str = ""
    attempt: int = 0
    entry: str = ""
    unknown: tuple[str, ...] = ()  # tasks that a submit is to depend on and that nobody knows

    @classmethod
    def read(cls, reply: Sequence[Any], task_id: str) -> "Answer":
        """Read a script's reply: a word, then names and values."""
        given = dict(zip(reply[1::2], reply[2::2], strict=True))
        return cls(
            reply[0],
            given.get("id", task_id),
            given.get("state", ""),
            given.get("attempt", 0),
            given.get("entry", ""),
            tuple(given.get("dependencies", "").split()),
        )


@dataclass(frozen=True, slots=True)
class Submission:
    """A checked task on its way in. Times are ms; texts are JSON where the name says so."""

    task_id: str
    type: str
    queue: str
    policy: Policy
    params_json: str
    fingerprint: str
    owner: str = ""
    metadata_json: str = ""
    delay: int = 0
    run_at: int = 0
    idempotency_key: str = ""
    actor: str = "client"
    depends_on: tuple[str, ...] = ()
    callback_url: str = ""
    confined: bool = False  # it may know of its owner's tasks only
    secrets_json: str = ""  # the params as the handler gets them, where those to show hide something


@dataclass(frozen=True, slots=True)
class Held:
    """The right to write to a task: its running attempt and that attempt's token."""

    task_id: str
    attempt: int
    token: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """A task that a worker just started."""

    held: Held
    task: Task
    params: Any
    checkpoint: Any
    asked_at: float = 0.0  # when the call that started it was made, on the monotonic clock: the lease counts from there
    results: Mapping[str, Any] | int = field(default_factory=dict[str, Any])
    """What the tasks that it depends on returned, by id; how many bytes that is when it is too much."""
    answered_at: float = field(default_factory=time.monotonic)
    """When the call had its answer: the timeout counts from here, so that no attempt runs shorter than it may."""
    followers: tuple["Claimed", ...] = ()
    """Tasks that were started with it, to be run right behind it in this order."""


@dataclass(frozen=True, slots=True)
class PlainJob:
    """An rq job that is no task, moved to rq's intermediate list of its queue."""

    queue: str
    job_id: str


@dataclass(frozen=True, slots=True)
class NothingToClaim:
    """No task for this worker, and why.

    `empty`, `suspended`, `damaged` or `more` (ask again: there may be some behind what was passed over); for a given
    task `refused` or `missing`.
    """

    why: str


ClaimReply = Claimed | PlainJob | NothingToClaim


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended. `text` is the result as JSON for COMPLETE, else the error's text; `asked` is ms."""

    event: Event
    reason: Reason
    message: str = ""
    text: str = ""
    retryable: bool = True
    asked: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """An attempt with its end, as Redis is to be told. `fraction` in [0, 1) is the jitter of a retry."""

    held: Held
    ending: Ending
    fraction: float = field(default_factory=random.random)

    @property
    def packed(self) -> tuple[str | int | float, ...]:
        """What the script takes of it, in its order."""
        held, ending = self.held, self.ending
        return (
            held.attempt, held.token, ending.event, ending.reason, ending.message, ending.text,
            int(ending.retryable), ending.asked, self.fraction,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's wish for a task of these types from these queues, in the order of the queues."""

    worker_id: str
    queues: tuple[str, ...]
    token: str
    types: tuple[str, ...]
    tasks_only: bool = False  # plain rq jobs are passed over
    together: tuple[tuple[str, int], ...] = ()  # types of which the worker takes several at once, and how many

    @classmethod
    def new(
        cls, worker_id: str, queues: Sequence[str], types: Sequence[str], together: Sequence[tuple[str, int]] = ()
    ) -> "Claim":
        """Return a claim with a fresh token; repeat the same object when its reply is lost."""
        return cls(worker_id, tuple(queues), secrets.token_hex(8), tuple(types), together=tuple(together))

    @property
    def packed_types(self) -> str:
        """The types as the scripts look for one in them: ",a,b,"."""
        return f",{','.join(self.types)},"

    @property
    def packed_together(self) -> str:
        """How many of which types as the scripts look for one in them: ",a=2,b=9,"."""
        return f",{','.join(f'{name}={most}' for name, most in self.together)},"


@dataclass(frozen=True, slots=True)
class Swept:
    """What one bounded step of the watchdog did."""

    looked_at: int
    moved: int
    problems: tuple[str, ...]
    to_ask: Mapping[str, str] = field(default_factory=dict[str, str])  # worker -> where to ask for its health


@dataclass(frozen=True, slots=True)
class Archived:
    """What stands in an archive: the name of its file, and each task with its last history entry then.

    The entry is "" for a task that could not be archived.
    """

    file: str
    tasks: Mapping[str, str]
