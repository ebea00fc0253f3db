"""What a person may ask for when submitting, checked whole before anything is stored."""

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ..statemachine import Policy
from . import bounds, receivers
from .bounds import Bounds
from .catalog import PublishedType
from .errors import Fault, InvalidTask
from .messages import Submission
from .names import ID, KEY_LIMIT, NAME, OWNER_LIMIT
from .receivers import Network
from .values import InvalidValue, digest, mismatch, shown, text_fault, to_json

MOST_DEPENDENCIES = 100
"""Tasks that one task may depend on."""


@dataclass(frozen=True, slots=True)
class Request:
    """A wish to run a task, as it came in. Times are seconds; `run_at` is seconds since 1970.

    `depends_on` are the ids of tasks that must end in SUCCESS first; each must be there already. A `confined` wish is
    of somebody who may know of its owner's tasks only: it depends on no others, and its idempotency key is theirs.
    """

    type: str
    params: Mapping[str, Any]
    id: str | None = None
    queue: str | None = None
    delay: float | None = None
    run_at: float | None = None
    timeout: float | None = None
    stall_timeout: float | None = None
    max_retries: int | None = None
    owner: str | None = None
    metadata: Any = None
    idempotency_key: str | None = None
    depends_on: Sequence[str] = ()
    callback_url: str | None = None  # where each end of the task is told to
    confined: bool = False

    def checked(
        self, actor: str, find_type: Callable[[str, object], PublishedType], networks: Sequence[Network] = ()
    ) -> Submission:
        """Return what the store takes; `networks` are those of one's own, to which callbacks may go.

        Raises InvalidTask, TooLarge, UnknownTaskType or InvalidParams.
        """
        faults = [Fault(field, message) for field, message in self._faults() if message]
        wrong_url = "" if self.callback_url is None else receivers.fault(self.callback_url, networks)
        faults += [Fault("callback_url", wrong_url)] if wrong_url else []
        if faults:
            raise InvalidTask(faults)
        whole_json = _json("params", self.params)
        kind = find_type(self.type, self.params)
        shown_params = kind.masked(self.params)
        params_json = whole_json if shown_params is self.params else _json("params", shown_params)
        depends_on = tuple(dict.fromkeys(self.depends_on))
        return Submission(
            task_id=self.id or new_id(),
            type=self.type,
            queue=self.queue or kind.queue,
            policy=self._policy(kind),
            params_json=params_json,
            secrets_json="" if params_json == whole_json else whole_json,
            fingerprint=_fingerprint(self.type, whole_json, depends_on, self.callback_url),
            owner=self.owner or "",
            metadata_json="" if self.metadata is None else _json("metadata", self.metadata),
            delay=round((self.delay or 0) * 1000),
            run_at=round((self.run_at or 0) * 1000),
            idempotency_key=self._idempotency_key(),
            actor=actor,
            depends_on=depends_on,
            callback_url=self.callback_url or "",
            confined=self.confined,
        )

    def _idempotency_key(self) -> str:
        if not self.idempotency_key or not self.confined:
            return self.idempotency_key or ""
        # A digest, so that an owner's name and a key of any length make one that is no other pair's.
        return f"owner:{digest(json.dumps([self.owner, self.idempotency_key]))}"

    def _faults(self) -> list[tuple[str, str]]:
        return [
            ("type", mismatch(self.type, NAME)),
            ("params", "" if _is_object(self.params) else f"expected an object, got {shown(self.params)}"),
            ("id", _not_matching(self.id, ID)),
            ("queue", _not_matching(self.queue, NAME)),
            ("owner", _not_text(self.owner, OWNER_LIMIT)),
            ("idempotency_key", _not_text(self.idempotency_key, KEY_LIMIT)),
            ("delay", _outside(self.delay, bounds.WAIT)),
            ("run_at", self._run_at_fault()),
            ("timeout", _outside(self.timeout, bounds.TIMEOUT)),
            ("stall_timeout", _outside(self.stall_timeout, bounds.CLOCK)),
            ("max_retries", _outside(self.max_retries, bounds.ATTEMPTS)),
            ("depends_on", self._depends_on_fault()),
        ]

    def _depends_on_fault(self) -> str:
        ids: object = self.depends_on
        if not isinstance(ids, list | tuple) or len(cast("Sequence[object]", ids)) > MOST_DEPENDENCIES:
            return f"expected a list of at most {MOST_DEPENDENCIES} ids of tasks, got {shown(ids)}"
        if self.id is not None and self.id in ids:
            return "a task cannot depend on itself"
        return next((fault for one in cast("Sequence[object]", ids) if (fault := mismatch(one, ID))), "")

    def _run_at_fault(self) -> str:
        if self.run_at is not None and self.delay is not None:
            return "give either delay or run_at"
        # Only a bound against nonsense; when the task is due is for Redis' clock to say.
        return _outside(self.run_at, bounds.Seconds(1, time.time() + bounds.WAIT.most))

    def _policy(self, kind: PublishedType) -> Policy:
        wanted = {
            "timeout": _milliseconds(self.timeout),
            "stall_timeout": _milliseconds(self.stall_timeout),
            "max_retries": self.max_retries,
        }
        policy = replace(kind.policy, **{name: value for name, value in wanted.items() if value is not None})
        if 0 < policy.max_runtime < policy.timeout:
            longest = f"at most {policy.max_runtime / 1000:g} s, the max_runtime of {kind.name}"
            raise InvalidTask([Fault("timeout", f"expected {longest}, got {shown(self.timeout)}")])
        if self.stall_timeout and policy.stall_timeout >= policy.longest_run:
            expected = f"less than the {policy.longest_run / 1000:g} s that an attempt may run at all"
            raise InvalidTask([Fault("stall_timeout", f"expected {expected}, got {shown(self.stall_timeout)}")])
        return policy


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def new_id() -> str:
    """Return a fresh id: a UUIDv7 in hex (RFC 9562), so that ids sort by the time they were made."""
    # Python has uuid.uuid7 only since 3.14.
    random_part = int.from_bytes(os.urandom(10), "big")
    value = (int(time.time() * 1000) << 80) | random_part
    value = value & ~(0xF << 76) | (7 << 76)
    value = value & ~(3 << 62) | (2 << 62)
    return f"{value:032x}"


def _json(what: str, value: object) -> str:
    try:
        return to_json(what, value)
    except InvalidValue as error:
        raise InvalidTask([Fault(error.name, f"expected {error.expected}, got {error.got}")]) from error


def _fingerprint(task_type: str, params_json: str, depends_on: Sequence[str], callback_url: str | None) -> str:
    wanted = [task_type, json.loads(params_json), *([sorted(depends_on)] if depends_on else [])]
    wanted += [{"callback_url": callback_url}] if callback_url else []
    return digest(json.dumps(wanted, sort_keys=True, separators=(",", ":")))


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in cast("Mapping[Any, Any]", value))


def _not_matching(value: object, pattern: re.Pattern[str]) -> str:
    return "" if value is None else mismatch(value, pattern)


def _not_text(value: object, longest: int) -> str:
    return "" if value is None else text_fault(value, longest)


def _outside(value: object, allowed: Bounds) -> str:
    return "" if value is None else bounds.fault(value, allowed)
