"""Clients, workers and watchdogs that do whatever Hypothesis thinks of, and a model that says what is to follow."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from audit import audit
from faults.model import FINAL, RUNNING, WAITING_FOR_TIME, Model
from ghostless.jobs.errors import StaleAttempt, TaskNotFound
from ghostless.jobs.messages import Answer, Claim, Claimed, ClaimReply, Ending, Held, NothingToClaim, Submission
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.statemachine import LOSSES, Event, Policy, Reason
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from redis import Redis
from scripts.snapshot import difference, snapshot

FAR = 10**12
"""Milliseconds of every waiting time: it is over when a rule says so, not before."""

POLICY = Policy(max_retries=1, max_timeouts=1, max_losses=1, backoff_base=FAR, backoff_cap=FAR)
QUEUES = ("q1", "q2")
SERVED = {"w1": ("demo.add",), "w2": ("demo.add", "demo.sub"), "w3": ("demo.sub",)}
COUNTERS = ("failures", "timeouts", "losses")

numbers = st.integers(0, 4)  # of a task, in the order of their submits; beyond the last one, of none
types = st.sampled_from(["demo.add", "demo.sub"])
queues = st.sampled_from(QUEUES)
workers = st.sampled_from(sorted(SERVED))
actors = st.sampled_from(["client:a", "client:b"])
watchdogs = st.sampled_from(["watchdog:a", "watchdog:b"])
endings = st.sampled_from(
    [
        (Event.COMPLETE, Reason.POLICY),
        (Event.FAIL, Reason.EXCEPTION),
        (Event.FAIL, Reason.CRASHED),
        (Event.TIMEOUT, Reason.DEADLINE),
        (Event.STOPPED, Reason.USER),
        (Event.SUSPEND, Reason.SHUTDOWN),
        (Event.SUSPEND, Reason.UNKNOWN_TYPE),
    ]
)


class Machine(RuleBasedStateMachine):
    """Clients, workers and watchdogs on one database, and what each task should be."""

    attempts = Bundle("attempts")  # every attempt that was ever held, however long ago

    def __init__(self, redis: Redis) -> None:
        super().__init__()
        self.redis = redis
        self.store = Store(redis, Settings())
        self.keys = self.store.keys
        self.tasks: dict[str, Model] = {}
        self.purged: set[str] = set()
        self.paused: set[str] = set()
        self.claims: dict[str, Claim] = {}  # the last one of each worker
        self.tokens = map("{:04x}".format, itertools.count())

    @initialize(given=st.lists(st.tuples(types, queues), min_size=3, max_size=4))
    def begin(self, given: list[tuple[str, str]]) -> None:
        """Begin with some tasks: Hypothesis leaves out some rules in every sequence, it may be the submits."""
        self.redis.flushdb()
        for number, (task_type, queue) in enumerate(given):
            self.submit(number, task_type, queue, False, "client:a")

    # Clients

    @rule(number=numbers, task_type=types, queue=queues, is_delayed=st.booleans(), actor=actors)
    def submit(self, number: int, task_type: str, queue: str, is_delayed: bool, actor: str) -> None:
        """Submit a task, or one that is there already."""
        task_id = f"t{min(number, len(self.tasks) + len(self.purged))}"
        there = self.tasks.get(task_id)
        told = self.store.submit(
            Submission(task_id, task_type, queue, POLICY, "{}", task_type, delay=FAR * is_delayed, actor=actor)
        )
        if there:
            assert ("already" if there.type == task_type else "conflict") == told.word
        elif task_id in self.purged:
            assert "purged" == told.word
        else:
            self.tasks[task_id] = Model(task_id, task_type, queue)
            assert self.tasks[task_id].submit(is_delayed) == told.word

    @rule(number=numbers, verb=st.sampled_from(["cancel", "pause", "resume", "retry"]), actor=actors)
    def wish(self, number: int, verb: str, actor: str) -> None:
        """Ask for a task to be cancelled, paused, resumed or retried."""
        task_id = f"t{number}"
        self._expect(task_id, getattr(self.store, verb)(task_id, actor), lambda task: getattr(task, verb)())

    def _expect(self, task_id: str, told: Answer, judge: Callable[[Model], str]) -> None:
        task = self.tasks.get(task_id)
        if task is None:
            assert "missing" == told.word
        else:
            assert (judge(task), task.state, task.attempt) == (told.word, told.state, told.attempt)

    # Workers

    @precondition(lambda self: self._in({"PENDING"}))
    @rule(target=attempts, worker=workers)
    def claim(self, worker: str) -> Any:
        """Ask for the next task."""
        self.claims[worker] = Claim(worker, QUEUES, next(self.tokens), SERVED[worker])
        return self._claimed(self.claims[worker], self.store.claim(self.claims[worker]))

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
        assert (held[0].id, held[0].attempt) == (reply.held.task_id, reply.held.attempt)
        held[0].is_lost = False
        return multiple()

    def _claimed(self, claim: Claim, reply: ClaimReply | None) -> Any:
        queue = next((queue for queue in claim.queues if self._waiting(queue, claim.types)), None)
        if queue is None:
            assert NothingToClaim("empty") == reply
            return multiple()
        assert isinstance(reply, Claimed)
        assert reply.held.task_id in self._waiting(queue, claim.types)
        self.tasks[reply.held.task_id].start(claim.worker_id, claim.token)
        return reply.held

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

    @rule(held=attempts, verb=st.sampled_from(["heartbeat", "progress", "checkpoint", "log", "stage"]))
    def report(self, held: Held, verb: str) -> None:
        """Report as an attempt that may be long over: then nothing may change but the count of such writes."""
        task, before = self.tasks.get(held.task_id), snapshot(self.redis)
        standing = task.holds(held.attempt, held.token) if task else "missing"
        if not task or standing != "moved":
            with pytest.raises(StaleAttempt if task else TaskNotFound):
                self._report(held, verb)
            assert {} == difference(before, snapshot(self.redis))
            return
        told = self._report(held, verb)
        word = task.stage() if verb == "stage" else "moved"
        task.is_lost &= word != "moved"
        assert (word, task.state) == (told.word, told.state)

    def _report(self, held: Held, verb: str) -> Answer:
        arguments: dict[str, tuple[Any, ...]] = {
            "progress": (0.5, "half"), "checkpoint": ("[1]",), "log": (["a line"],), "stage": ("worker", "begun"),
        }  # fmt: skip
        return getattr(self.store, verb)(held, *arguments.get(verb, ()))

    @rule(held=attempts, ending=endings, retryable=st.booleans())
    def finish(self, held: Held, ending: tuple[Event, Reason], retryable: bool) -> None:
        """End an attempt, which may be over already; the answer does not depend on how often it is given."""
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

    def _finish(self, held: Held, ending: tuple[Event, Reason], retryable: bool, claim: Claim | None = None) -> Any:
        event, reason = ending
        return self.store.finish(
            held, Ending(event, reason, text="1", retryable=retryable), "worker", claim, fraction=0.5
        )

    def _expect_end(self, held: Held, ending: tuple[Event, Reason], retryable: bool, told: Answer) -> None:
        event, reason = ending
        badly = "timeouts" if event is Event.TIMEOUT else "failures"
        budget = "losses" if reason in LOSSES else badly

        def judge(task: Model) -> str:
            standing = task.holds(held.attempt, held.token)
            return standing if standing != "moved" else task.end(event, budget, retryable=retryable)

        self._expect(held.task_id, told, judge)

    # Time, and those who watch it

    @rule(number=numbers)
    def let_its_time_come(self, number: int) -> None:
        """End the time that a task waits for, or the lease of one that runs."""
        task = self.tasks.get(f"t{number}")
        if task and task.state in WAITING_FOR_TIME:
            task.is_due = True
            self.redis.zadd(self.keys.due, {task.id: 1})
            self.redis.hset(self.keys.task(task.id), "due_at", 1)
        elif task and task.state in RUNNING:
            task.is_lost = True
            self.redis.delete(self.keys.heartbeat(task.id))
            self.redis.zadd(self.keys.deadlines, {task.id: 1})

    @precondition(lambda self: self._in({"PROCESSING"}))
    @rule(data=st.data())
    def let_its_deadline_pass(self, data: st.DataObject) -> None:
        """Let an attempt run for too long."""
        task = self._one_in({"PROCESSING"}, data)
        task.is_overdue = True
        self.redis.zadd(self.keys.deadlines, {task.id: 1})
        self.redis.hset(self.keys.task(task.id), "timeout_at", 1)

    def _in(self, states: set[str]) -> list[str]:
        return [task.id for task in self.tasks.values() if task.state in states]

    def _one_in(self, states: set[str], data: st.DataObject) -> Model:
        return self.tasks[data.draw(st.sampled_from(self._in(states)))]

    @precondition(lambda self: any(task.is_due or task.is_lost or task.is_overdue for task in self.tasks.values()))
    @rule(actor=watchdogs)
    def watch(self, actor: str) -> None:
        """Release what is due, and take away what is lost."""
        self._release(actor)
        self._sweep(actor)

    def _release(self, actor: str) -> None:
        due = [task for task in self.tasks.values() if task.state in WAITING_FOR_TIME and task.is_due]
        assert len(due) == self.store.release(actor).moved
        for task in due:
            task.release()

    def _sweep(self, actor: str) -> None:
        seconds, micros = self.redis.time()  # type: ignore[misc]
        now = seconds * 1000 + micros // 1000
        self.redis.hset(self.keys.watchdog, mapping={"swept_at": now, "judge_from": now - 1})
        self.redis.pexpire(self.keys.watchdog, 60_000)
        lost = [task for task in self.tasks.values() if task.state in RUNNING and task.is_lost]
        late = [task for task in self.tasks.values() if task.state == "PROCESSING" and task.is_overdue]
        gone = {task.id: "timeouts" for task in late} | {task.id: "losses" for task in lost}
        assert len(gone) == self.store.sweep(actor).moved
        for task_id, budget in gone.items():
            self.tasks[task_id].take_away(budget)

    @precondition(lambda self: self._in(RUNNING))
    @rule(number=numbers, attempt=st.integers(1, 2), worker=workers)
    def lose(self, number: int, attempt: int, worker: str) -> None:
        """Report a worker as dead, which may not be the one that runs the task."""

        def judge(task: Model) -> str:
            if attempt != task.attempt:
                return "stale"
            if task.state not in RUNNING:
                return "already"
            if worker != task.worker:
                return "stale"
            task.take_away("losses")
            return "moved"

        task_id = f"t{number}"
        self._expect(task_id, self.store.lose(task_id, attempt, worker, "pool", "dead", is_dead=True), judge)

    # What is seldom done: one rule, that it does not crowd out the others

    @rule(what=st.sampled_from(["hold", "let_go", "unpark", "requeue", "purge"]), number=numbers, actor=watchdogs)
    def keep_up(self, what: str, number: int, actor: str) -> None:
        """Do this to a task, if it is one to which it can be done, and to its queue."""
        task = self.tasks.get(f"t{number}")
        if task:
            getattr(self, f"_{what}")(task, actor)

    def _hold(self, task: Model, _actor: str) -> None:
        self.store.pause_queue(task.queue)
        self.paused.add(task.queue)

    def _let_go(self, task: Model, _actor: str) -> None:
        self.store.resume_queue(task.queue)
        self.paused.discard(task.queue)

    def _unpark(self, task: Model, _actor: str) -> None:
        self.store.unpark([task.type])

    def _requeue(self, task: Model, actor: str) -> None:
        """Lose the ticket of a task, if it has one, and let a watchdog find that out."""
        if self.redis.lrem(self.keys.rq_queue(task.queue), 1, task.id):
            self.redis.delete(self.keys.rq_job(task.id))
            self.redis.hset(self.keys.task(task.id), "unticketed_at", 1)
            assert 1 == self.store.requeue(actor, task.queue).moved
            task.requeue()

    def _purge(self, task: Model, _actor: str) -> None:
        """Let the retention of a task be over."""
        if task.state in FINAL:
            self.redis.zadd(self.keys.retention, {task.id: 1})
            assert 1 == self.store.purge().moved
            del self.tasks[task.id]
            self.purged.add(task.id)

    # What must hold after each

    @invariant()
    def agrees_with_the_model(self) -> None:
        """State, attempt, budgets and history of each task are the model's."""
        with self.redis.pipeline(transaction=False) as pipeline:
            for task_id in self.tasks:
                pipeline.hgetall(self.keys.task(task_id))
            stored = dict(zip(self.tasks, pipeline.execute(), strict=True))
        history = dict(self.redis.xrange(self.keys.history))
        for task_id, task in self.tasks.items():
            fields = stored[task_id]
            used = {name: int(fields[name]) for name in COUNTERS if name in fields}
            assert (task.state, task.attempt, task.used) == (fields["state"], int(fields["attempt"]), used)
            named = [history[fields[f"h{number}"]] for number in range(1, int(fields["entries"]) + 1)]
            entries = [(entry["event"], entry["from"], entry["to"], int(entry["attempt"])) for entry in named]
            assert task.entries == entries

    @invariant()
    def is_sound(self) -> None:
        """The audit finds nothing: each index, ticket, lease and entry is where it belongs."""
        assert [] == audit(self.redis, self.keys, self.tasks)
