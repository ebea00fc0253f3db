"""What changes Redis: one function a script, each a single round trip that is safe to repeat."""

import json
import logging
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, cast

from redis.exceptions import RedisError

from ..lua import BATCH
from ..statemachine import Reason
from .connection import pop_unless_woken
from .errors import CorruptRecord, GhostlessError, StaleAttempt, TaskNotFound
from .messages import (
    Answer,
    Claim,
    Claimed,
    ClaimReply,
    Ending,
    Finished,
    Held,
    NothingToClaim,
    PlainJob,
    Submission,
    Swept,
)
from .scripts import Call, translate, translated
from .started import Started, unreadable
from .watchdog_steps import WatchdogSteps, read_swept

log = logging.getLogger("ghostless")

LOG_LINES = 1000
"""Lines of a task's log that are kept."""

HISTORY_ENTRIES = 1000
"""Entries after which a task's further stages are refused; its transitions never are."""


class Store(WatchdogSteps):
    """Every write of the product, on one connection. Safe to use from several threads.

    Each function raises RedisUnavailable, RedisFull or CorruptRecord, and nothing is half-written then.
    """

    # Submitting

    def submit(self, submission: Submission) -> Answer:
        """Accept a task, or tell what already has its id or its idempotency key."""
        return Answer.read(self._scripts.call(*self._submit_call(submission)), submission.task_id)

    def submit_many(self, submissions: Sequence[Submission]) -> list[Answer | Exception]:
        """Accept many tasks in one round trip; each has its own answer or error."""
        replies = self._scripts.call_many(map(self._submit_call, submissions))
        return [
            reply if isinstance(reply, Exception) else Answer.read(reply, submission.task_id)
            for submission, reply in zip(submissions, replies, strict=True)
        ]

    def _submit_call(self, task: Submission) -> Call:
        policy, clocks = task.policy.pack_in_two()
        arguments = (
            task.type, task.queue, task.owner, policy, task.params_json, task.metadata_json,
            task.fingerprint, task.delay, task.run_at, task.idempotency_key, round(self.settings.idempotency * 1000),
            secrets.token_hex(4), task.actor, Reason.USER, clocks,
            json.dumps(task.depends_on) if task.depends_on else "", task.callback_url,
            int(task.confined), task.secrets_json,
        )  # fmt: skip
        return "submit", [self.keys.task(task.task_id)], arguments

    # A worker's life

    def claim(self, claim: Claim) -> ClaimReply:
        """Start the next task of the claim's queues, or tell why there is none."""
        lists = [self.keys.rq_queue(queue) for queue in claim.queues]
        asked_at = time.monotonic()
        arguments = (
            claim.worker_id, claim.token, self._lease, claim.packed_types, self._patience, int(claim.tasks_only),
            claim.packed_together,
        )  # fmt: skip
        reply = self._scripts.call("claim", lists, arguments)
        return self._read_claim(reply, asked_at)

    def start(self, task_id: str, worker_id: str, token: str) -> ClaimReply:
        """Start one given task whose ticket was popped elsewhere, or tell that it is not PENDING."""
        asked_at = time.monotonic()
        arguments = (worker_id, token, self._lease, self._patience)
        reply = self._scripts.call("start", [self.keys.task(task_id)], arguments)
        return self._read_claim(reply, asked_at)

    def heartbeat(self, held: Held, longest_run: int | None = None) -> Answer:
        """Renew the lease; the answer tells the state. Raises StaleAttempt, TaskNotFound.

        `longest_run` is what the attempt may run, in ms from its start, when it got more than its timeout.
        """
        return self._write(held, "heartbeat", self._lease, "" if longest_run is None else longest_run)

    def progress(self, held: Held, fraction: float, message: str) -> Answer:
        """Note how far the attempt is. Raises StaleAttempt, TaskNotFound."""
        return self._write(held, "progress", self._lease, repr(fraction), message)

    def checkpoint(self, held: Held, value_json: str) -> Answer:
        """Keep what a later attempt goes on from. Raises StaleAttempt, TaskNotFound."""
        return self._write(held, "checkpoint", self._lease, value_json)

    def log(self, held: Held, lines: Sequence[str], call_id: str = "") -> Answer:
        """Append lines to the task's log. Raises StaleAttempt, TaskNotFound.

        A caller that repeats the call itself gives the same `call_id` again, so that no line is kept twice.
        """
        return self._write(held, "log", self._lease, LOG_LINES, call_id or secrets.token_hex(4), *lines)

    def stage(self, held: Held, actor: str, name: str, call_id: str = "") -> Answer:
        """Record a named stage in the history; `call_id` as for `log`. Raises StaleAttempt, TaskNotFound."""
        return self._write(held, "stage", self._lease, actor, name, HISTORY_ENTRIES, call_id or secrets.token_hex(4))

    def _write(self, held: Held, verb: str, *arguments: str | int) -> Answer:
        reply = self._scripts.call(verb, [self.keys.task(held.task_id)], (held.attempt, held.token, *arguments))
        answer = Answer.read(reply, held.task_id)
        if answer.word == "missing":
            raise TaskNotFound(held.task_id)
        if answer.word in ("stale", "already"):
            raise StaleAttempt(held.task_id, held.attempt)
        return answer

    def finish(
        self,
        held: Held,
        ending: Ending,
        actor: str,
        claim: Claim | None = None,
        *,
        fraction: float | None = None,
    ) -> tuple[Answer, ClaimReply | None]:
        """End an attempt and, when `claim` is given, start the worker's next task in the same call.

        `fraction` in [0, 1) is the jitter of a retry; random when not given.
        """
        one = Finished(held, ending) if fraction is None else Finished(held, ending, fraction)
        (answer,), following = self.finish_each([one], actor, claim)
        if isinstance(answer, GhostlessError):
            raise answer
        return answer, following

    def finish_each(
        self, finished: Sequence[Finished], actor: str, claim: Claim | None = None
    ) -> tuple[list[Answer | GhostlessError], ClaimReply | None]:
        """End attempts, each for itself, and start what the worker runs next in the same call.

        What cannot be ended since something is damaged is answered with that error, and nothing is started then.
        """
        tasks = [self.keys.task(one.held.task_id) for one in finished]
        queues = [self.keys.rq_queue(queue) for queue in claim.queues] if claim else []
        arguments = (
            len(tasks), actor,
            claim.worker_id if claim else "", claim.token if claim else "", self._lease,
            claim.packed_types if claim else "", self._patience, claim.packed_together if claim else "",
            *chain.from_iterable(one.packed for one in finished),
        )  # fmt: skip
        asked_at = time.monotonic()
        reply = self._scripts.call("finish", [*tasks, *queues], arguments)
        following = self._read_claim(reply[len(tasks)], asked_at) if len(reply) > len(tasks) else None
        return [_read_end(one.held, answer) for one, answer in zip(finished, reply, strict=False)], following

    def _read_claim(self, reply: Sequence[Any] | Exception, asked_at: float) -> ClaimReply:
        if isinstance(reply, Exception):
            return NothingToClaim("damaged")  # after a finish, which holds all the same; a claim alone raises it
        word = cast(str, reply[0])
        if word == "plain":
            return PlainJob(reply[1], reply[2])
        if word not in ("claimed", "batch"):
            return NothingToClaim(word)
        read = [self._read_claimed(one, asked_at) for one in (reply[1:] if word == "batch" else [reply])]
        first, *followers = [claimed for claimed in read if claimed] or [None]
        if first is None:
            return NothingToClaim("damaged")
        return replace(first, followers=tuple(followers)) if followers else first

    def _read_claimed(self, reply: Sequence[Any], asked_at: float) -> Claimed | None:
        started = Started.read(reply)
        try:
            return started.claimed(asked_at)
        except CorruptRecord as error:
            try:
                self.finish(started.held, unreadable(error), f"worker:{started.worker_id}")
            except CorruptRecord as damage:  # the watchdog finds it by its lease; others were started with it
                log.error("task %s cannot be settled: %s", started.held.task_id, damage)
            return None

    def put_back(self, plain: PlainJob) -> None:
        """Put a plain job that was not begun back to the head of its queue."""
        self._scripts.call("put_back", [self.keys.rq_queue(plain.queue)], (plain.job_id,))

    def publish_types(self, types: Mapping[str, Mapping[str, Any]]) -> None:
        """Publish what task types a worker serves, for those who check a submit."""
        with translated(self.keys.types):
            if types:
                self.redis.hset(self.keys.types, mapping={name: json.dumps(kind) for name, kind in types.items()})

    def unpark(self, types: Sequence[str]) -> int:
        """Give the parked tasks of these types back to their queues, where stock rq workers find them; tell how many.

        Each counts once, although a worker that does not serve its type may park it again meanwhile, so that it is
        given back twice.
        """
        first = self._unpark(types)
        moved = first.moved + sum(self._unpark(types).moved for _ in range(first.looked_at // BATCH))
        return min(moved, first.looked_at)

    def _unpark(self, types: Sequence[str]) -> Swept:
        swept = read_swept(self._scripts.call("unpark", (), (BATCH, *types)))
        for problem in swept.problems:
            log.error("%s", problem)
        return swept

    def are_published(self, types: Iterable[str]) -> bool:
        """Tell whether each of these types is published, by whomever."""
        names = list(types)
        with translated(self.keys.types):
            return not names or None not in cast("list[str | None]", self.redis.hmget(self.keys.types, names))

    def wait_for_hint(self, queues: Iterable[str], seconds: float, wake_fd: int) -> None:
        """Return when something may be in one of the queues, after `seconds`, or when `wake_fd` is readable."""
        with translated():
            pop_unless_woken(self.redis, [self.keys.wake(queue) for queue in queues], seconds, wake_fd)

    # A person's wishes

    def cancel(self, task_id: str, actor: str, reason: Reason = Reason.USER, message: str = "") -> Answer:
        """Cancel a task, at once or by asking its worker."""
        return self._ask("cancel", task_id, actor, reason, message)

    def pause(self, task_id: str, actor: str, reason: Reason = Reason.USER, message: str = "") -> Answer:
        """Pause a task, at once or at its next checkpoint."""
        return self._ask("pause", task_id, actor, reason, message)

    def resume(self, task_id: str, actor: str, reason: Reason = Reason.USER, message: str = "") -> Answer:
        """Resume a paused task, or withdraw a pause not carried out yet."""
        return self._ask("resume", task_id, actor, reason, message)

    def retry(self, task_id: str, actor: str, reason: Reason = Reason.OPERATOR, message: str = "") -> Answer:
        """Give a failed or given-up task another life with fresh budgets."""
        return self._ask("retry", task_id, actor, reason, message)

    def _ask(self, verb: str, task_id: str, actor: str, reason: Reason, message: str) -> Answer:
        return Answer.read(self._scripts.call(verb, [self.keys.task(task_id)], (actor, reason, message)), task_id)

    def pause_queue(self, queue: str) -> None:
        """Let no task of this queue start until it is resumed; running ones go on."""
        with translated(self.keys.queues):
            self.redis.hset(self.keys.queues, queue, "paused")

    def resume_queue(self, queue: str) -> None:
        """Let the tasks of a paused queue start again."""
        with translated(self.keys.queues), self.redis.pipeline(transaction=False) as pipeline:
            pipeline.hset(self.keys.queues, queue, "running")
            pipeline.rpush(self.keys.wake(queue), "")
            resumed, _ = pipeline.execute(raise_on_error=False)  # a hint that cannot be left costs a poll
            if isinstance(resumed, Exception):
                raise resumed


def _read_end(held: Held, reply: Sequence[Any] | RedisError) -> Answer | GhostlessError:
    return translate(reply) if isinstance(reply, RedisError) else Answer.read(reply, held.task_id)
