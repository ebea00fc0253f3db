"""Clients, workers and watchdogs that do whatever Hypothesis thinks of, and a model that says what is to follow."""

from typing import Any

import pytest
from audit import audit
from faults.model import FINAL, RUNNING, WAITING_FOR_TIME, Model, settle
from faults.submitters import QUEUES, Submitters, actors, numbers, types
from ghostless.jobs.bulk import BulkFilter, BulkRequest
from ghostless.jobs.bulk_actions import BulkActions
from ghostless.jobs.errors import StaleAttempt, TaskNotFound
from ghostless.jobs.messages import Answer, Claim, Claimed, ClaimReply, Ending, Held, NothingToClaim
from ghostless.statemachine import LOSSES, Event, Reason
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
)
from scripts.snapshot import difference, snapshot

SERVED = {"w1": ("demo.add",), "w2": ("demo.add", "demo.sub"), "w3": ("demo.sub",)}
COUNTERS = ("failures", "timeouts", "losses")

workers = st.sampled_from(sorted(SERVED))
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


class Machine(Submitters):
    """Clients, workers and watchdogs on one database, and what each task should be."""

    attempts = Bundle("attempts")  # every attempt that was ever held, however long ago

    # People

    @rule(number=numbers, verb=st.sampled_from(["cancel", "pause", "resume", "retry"]), actor=actors)
    def wish(self, number: int, verb: str, actor: str) -> None:
        """Ask for a task to be cancelled, paused, resumed or retried."""
        task_id = f"t{number}"
        self._expect(task_id, getattr(self.store, verb)(task_id, actor), lambda task: getattr(task, verb)())

    @rule(verb=st.sampled_from(["cancel", "pause", "resume", "retry"]), task_type=types, actor=actors)
    def wish_for_all(self, verb: str, task_type: str, actor: str) -> None:
        """Ask it of all tasks of a type at once, and let a watchdog work that off."""
        bulk = BulkActions(self.store)
        bulk_id = bulk.begin(BulkRequest(verb, BulkFilter(type=task_type)), actor).bulk_id
        while bulk.get(bulk_id).ended_at is None:
            bulk.work_off()
        for task in self.tasks.values():
            if task.type == task_type:
                getattr(task, verb)()
        settle(self.tasks)

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

    @precondition(lambda self: self._in({"PENDING"}))
    @rule(worker=workers, ending=endings)
    def run(self, worker: str, ending: tuple[Event, Reason]) -> None:
        """Take the next task and end it for good, so that many ends are reached."""
        held = self.claim(worker)
        if isinstance(held, Held):
            self.finish(held, ending, False)

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
        if task and (task.state in WAITING_FOR_TIME or (task.state == "BLOCKED" and task.has_time)):
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
        due = [task for task in self.tasks.values() if task.state in {*WAITING_FOR_TIME, "BLOCKED"} and task.is_due]
        assert self.store.release(actor).moved == sum(task.release() for task in due)

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
        settle(self.tasks)

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

    @rule(
        what=st.sampled_from(["hold", "let_go", "unpark", "requeue", "recheck", "purge"]),
        number=numbers,
        actor=watchdogs,
    )
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

    def _recheck(self, _task: Model, actor: str) -> None:
        """Look again at those that wait for others: each was told."""
        assert (0, 0) == (self.store.settle().moved, self.store.recheck(actor).moved)

    def _purge(self, task: Model, _actor: str) -> None:
        """Let the retention of a task be over."""
        if task.state in FINAL:
            self.redis.zadd(self.keys.retention, {task.id: 1})
            assert 1 == self.store.purge().moved
            del self.tasks[task.id]
            self.purged[task.id] = task.state

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
