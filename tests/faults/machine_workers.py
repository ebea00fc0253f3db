"""Workers that take tasks, report and end them, at random, and what they are to be told: the machine's third part."""

from collections.abc import Sequence
from typing import Any

import pytest
from faults.machine_operators import Operators
from faults.machine_people import POLICY, QUEUES, numbers, queues
from faults.model import RUNNING, Model
from flask.testing import FlaskClient
from ghostless.jobs.clocks import Clocks
from ghostless.jobs.errors import StaleAttempt, TaskNotFound
from ghostless.jobs.messages import Answer, Claim, Claimed, ClaimReply, Ending, Held, NothingToClaim, PlainJob
from ghostless.statemachine import LOSSES, Event, Reason
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, consumes, multiple, precondition, rule
from redis import Redis
from scripts.snapshot import difference, snapshot

SERVED = {"w1": ("demo.add",), "w2": ("demo.add", "demo.sub"), "w3": ("demo.sub",)}
ENDINGS = (
    (Event.COMPLETE, Reason.POLICY),
    (Event.FAIL, Reason.EXCEPTION),
    (Event.FAIL, Reason.CRASHED),
    (Event.TIMEOUT, Reason.DEADLINE),
    (Event.STOPPED, Reason.USER),
    (Event.SUSPEND, Reason.SHUTDOWN),
    (Event.SUSPEND, Reason.UNKNOWN_TYPE),
)

workers = st.sampled_from(sorted(SERVED))
endings = st.sampled_from(ENDINGS)


class Workers(Operators):
    """Workers on the same database."""

    attempts = Bundle("attempts")  # every attempt that was ever held, however long ago

    def __init__(self, redis: Redis, web: FlaskClient) -> None:
        super().__init__(redis, web)
        self.plain = {queue: list[str]() for queue in QUEUES}  # rq jobs that are no tasks, the next one first
        self.begun: list[PlainJob] = []  # those that a worker took, and did not begin yet
        self.clocks: dict[Held, Clocks] = {}  # of each attempt, as its worker has them

    @precondition(lambda self: self._in({"PENDING"}) or any(self.plain.values()))
    @rule(target=attempts, worker=workers, most=st.integers(1, 3))
    def claim(self, worker: str, most: int) -> Any:
        """Ask for the next task, or for so many of one type."""
        together = tuple((name, most) for name in SERVED[worker]) if most > 1 else ()
        self.claims[worker] = Claim(worker, QUEUES, next(self.tokens), SERVED[worker], together=together)
        return self._claimed(self.claims[worker], self.store.claim(self.claims[worker]))

    @precondition(lambda self: self._in({"PENDING"}))
    @rule(target=attempts, worker=workers, queue=queues)
    def claim_over_http(self, worker: str, queue: str) -> Any:
        """Ask for the next task of a queue over HTTP: plain jobs are left to others."""
        self.claims[worker] = Claim(worker, (queue,), next(self.tokens), SERVED[worker], tasks_only=True)
        return self._claimed(self.claims[worker], self.http.claim(self.claims[worker]))

    @precondition(lambda self: self.claims)
    @rule(target=attempts, data=st.data())
    def claim_again(self, data: st.DataObject) -> Any:
        """Send a worker's last claim once more, as when its reply was lost."""
        claim = self.claims[data.draw(st.sampled_from(sorted(self.claims)))]
        reply = self.store.claim(claim)
        held = [task for task in self.tasks.values() if task.token == claim.token and task.state in RUNNING]
        if not held:
            return self._claimed(claim, reply)
        assert isinstance(reply, Claimed)
        told = [claimed.held for claimed in (reply, *reply.followers)]
        assert {(task.id, task.attempt) for task in held} == {(one.task_id, one.attempt) for one in told}
        for task in held:
            task.is_lost = False
        return multiple()

    def _claimed(self, claim: Claim, reply: ClaimReply | None) -> Any:
        queue = next((queue for queue in claim.queues if self._holds_some(queue, claim)), None)
        if queue is None:
            assert NothingToClaim("empty") == reply
        elif isinstance(reply, PlainJob):
            self._take_plain(queue, claim, reply)
        else:
            assert isinstance(reply, Claimed)
            return self._started(claim, [reply, *reply.followers], self._waiting(queue, claim.types))
        return multiple()

    def _holds_some(self, queue: str, claim: Claim) -> bool:
        has_plain = self.plain[queue] and not claim.tasks_only and queue not in self.paused
        return bool(self._waiting(queue, claim.types) or has_plain)

    def _started(self, claim: Claim, started: Sequence[Claimed], waiting: Sequence[str]) -> Any:
        is_batch = len(started) > 1
        for claimed in started:
            task = self.tasks[claimed.held.task_id]
            assert task.id in waiting
            if is_batch:  # each a first attempt, of one type, that waited for nobody
                assert (0, started[0].task.type, set()) == (task.attempt, task.type, task.heeded)
            task.start(claim.worker_id, claim.token, is_batched=is_batch)
        return multiple(*(claimed.held for claimed in started))

    def _waiting(self, queue: str, served: tuple[str, ...]) -> list[str]:
        waiting = [task for task in self.tasks.values() if task.state == "PENDING" and task.queue == queue]
        return [task.id for task in waiting if task.type in served and queue not in self.paused]

    @rule(target=attempts, number=numbers, worker=workers)
    def start(self, number: int, worker: str) -> Any:
        """Start a task whose ticket a stock rq worker popped."""
        task_id, token = f"t{number}", next(self.tokens)
        task = self.tasks.get(task_id)
        is_pending = task is not None and task.state == "PENDING"
        if task and self.redis.lrem(self.keys.rq_queue(task.queue), 1, task_id):
            self.redis.hset(self.keys.rq_job(task_id), "status", "started")
        reply = self.store.start(task_id, worker, token)
        if not task or not is_pending:
            assert NothingToClaim("refused" if task else "missing") == reply
            return multiple()
        assert isinstance(reply, Claimed)
        task.start(worker, token)
        self.claims.pop(worker, None)
        return reply.held

    @rule(
        held=attempts,
        verb=st.sampled_from(["heartbeat", "progress", "checkpoint", "log", "stage"]),
        is_http=st.booleans(),
    )
    def report(self, held: Held, verb: str, is_http: bool = False) -> None:
        """Report as an attempt that may be long over: then nothing may change but the count of such writes."""
        task, before = self.tasks.get(held.task_id), snapshot(self.redis)
        standing = task.holds(held.attempt, held.token) if task else "missing"
        if not task or standing != "moved":
            with pytest.raises(StaleAttempt if task else TaskNotFound):
                self._report(held, verb, is_http)
            assert {} == difference(before, snapshot(self.redis))
            return
        told = self._report(held, verb, is_http)
        word = task.stage() if verb == "stage" else "moved"
        task.is_lost &= word != "moved"
        assert (word, task.state) == (told.word, told.state)

    @precondition(lambda self: self._in({"PROCESSING"}))
    @rule(held=attempts, has_reported=st.booleans())
    def reach_the_timeout(self, held: Held, has_reported: bool) -> None:
        """Let an attempt run for as long as it may: its worker gives it more time, or ends it."""
        task = self.tasks.get(held.task_id)
        if not task or task.state != "PROCESSING" or task.holds(held.attempt, held.token) != "moved":
            return
        clocks = self.clocks.setdefault(held, Clocks(POLICY, started_at=0.0))
        if has_reported:
            clocks.report(clocks.ends_at)
        may_go_on = task.gets_more_time(has_reported)
        assert may_go_on == clocks.extend(clocks.ends_at)
        self.met["more time" if may_go_on else "no more time", "reported" if has_reported else "silent"] += 1
        if may_go_on:
            assert "moved" == self.store.heartbeat(held, clocks.run).word
        else:
            self.finish(held, (Event.TIMEOUT, Reason.DEADLINE), True)

    def _report(self, held: Held, verb: str, is_http: bool) -> Answer:
        arguments: dict[str, tuple[Any, ...]] = {
            "progress": (0.5, "half"), "checkpoint": ("[1]",), "log": (["a line"],), "stage": ("worker", "begun"),
        }  # fmt: skip
        door = self.door(is_http and verb != "stage")  # which workers over HTTP do not have
        return getattr(door, verb)(held, *arguments.get(verb, ()))

    @rule(held=attempts, ending=endings, retryable=st.booleans(), is_http=st.booleans())
    def finish(self, held: Held, ending: tuple[Event, Reason], retryable: bool, is_http: bool = False) -> None:
        """End an attempt, which may be over already; the answer does not depend on how often it is given."""
        if is_http:
            self._expect_end(held, ending, retryable, self.http.finish(held, _ending(ending, retryable)), is_http)
            return
        told, _ = self._finish(held, ending, retryable)
        self._expect_end(held, ending, retryable, told)

    @rule(target=attempts, held=consumes(attempts), ending=endings, worker=workers)
    def finish_and_claim(self, held: Held, ending: tuple[Event, Reason], worker: str) -> Any:
        """End an attempt and ask for the next task in the same call, whoever's attempt it was."""
        claim = Claim(worker, QUEUES, next(self.tokens), SERVED[worker])
        told, reply = self._finish(held, ending, True, claim)
        self._expect_end(held, ending, True, told)
        self.claims[worker] = claim
        return self._claimed(claim, reply)

    @precondition(lambda self: self._in({"PENDING"}))
    @rule(worker=workers, ending=endings)
    def run(self, worker: str, ending: tuple[Event, Reason]) -> None:
        """Take the next task and end it for good, so that many ends are reached."""
        held = self.claim(worker, 1)
        if isinstance(held, Held):
            self.finish(held, ending, False)

    def _finish(self, held: Held, ending: tuple[Event, Reason], retryable: bool, claim: Claim | None = None) -> Any:
        return self.store.finish(held, _ending(ending, retryable), "worker", claim, fraction=0.5)

    def _expect_end(
        self, held: Held, ending: tuple[Event, Reason], retryable: bool, told: Answer, is_http: bool = False
    ) -> None:
        event, reason = ending
        badly = "timeouts" if event is Event.TIMEOUT else "failures"
        budget = "losses" if reason in LOSSES else badly

        def judge(task: Model) -> str:
            standing = task.holds(held.attempt, held.token)
            if standing == "already" and is_http:  # there a stale write is all that this attempt cannot have done
                return standing if task.is_as_after(event) else "stale"
            return standing if standing != "moved" else task.end(event, budget, retryable=retryable)

        self._expect(held.task_id, told, judge)


def _ending(ending: tuple[Event, Reason], retryable: bool) -> Ending:
    return Ending(*ending, text="1", retryable=retryable)
