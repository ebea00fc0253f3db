"""Clients, workers and watchdogs that do whatever Hypothesis thinks of, and a model that says what is to follow."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from audit import audit
from faults.machine_keepers import Keepers, watchdogs
from faults.machine_people import MOST, QUEUES, TYPES, Wish, numbers
from faults.machine_plans import MOST_TASKS
from faults.machine_workers import ENDINGS, SERVED, Workers, workers
from faults.model import FINAL, RUNNING, WAITING_FOR_TIME, Model, settle
from faults.model_plans import Plan
from ghostless.jobs.messages import Held
from ghostless.jobs.recurrence import MISFIRES, OVERLAPS
from ghostless.statemachine import TABLE, Event
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, multiple, precondition, rule
from redis import Redis

COUNTERS = ("failures", "timeouts", "losses")

WISHES = {Event.CANCEL, Event.PAUSE, Event.RESUME, Event.RETRY}
ENDS = {event for event, _ in ENDINGS}
MOVES = {*WISHES, *ENDS, Event.START, Event.STAGE, Event.REQUEUE, Event.RELEASE}
"""The events of the table that somebody brings about; the others follow from them, or change no state."""

seeds = st.integers(0, 2**32 - 1)
"""Of an even chance; Hypothesis itself prefers extreme values, and repeats what it did before."""


def _held(task: Model) -> Held:
    return Held(task.id, task.attempt, task.token)


class Machine(Keepers):
    """Clients, workers and watchdogs on one database, and what each task should be. `reached` counts what was met."""

    def __init__(self, redis: Redis, folder: Path, reached: Counter[tuple[str, ...]]) -> None:
        super().__init__(redis, folder)
        self._reached = reached

    def teardown(self) -> None:
        """Count what the tasks met."""
        for task in self.tasks.values():
            self.met.update(task.met)
        self._reached.update(self.met)

    # Arrows of the table that a task has before it: chance alone seldom chooses them

    @initialize(target=Workers.attempts, seed=seeds)
    def begin(self, seed: int) -> Any:
        """Begin with some tasks in any states: Hypothesis leaves out some rules in every sequence, also the submits."""
        self.redis.flushdb()
        self.publish()
        chance = Random(seed)
        for number in range(chance.randint(3, 5)):
            earlier = chance.sample(range(number), chance.randint(0, min(2, number)))
            task = self._submit(chance, earlier)
            for _ in range(chance.randint(0, 3)):
                self._follow(chance, task)
        return self._now_held(*self.tasks)

    @precondition(lambda self: self.tasks)
    @rule(target=Workers.attempts, seed=seeds)
    def move(self, seed: int) -> Any:
        """Bring one of the tasks along an arrow that leaves its state."""
        chance = Random(seed)
        task = self.tasks[chance.choice(sorted(self.tasks))]
        self._follow(chance, task)
        return self._now_held(task.id)

    @precondition(lambda self: len(self.tasks) <= MOST)
    @rule(seed=seeds)
    def end_what_others_wait_for(self, seed: int) -> None:
        """Submit a task, and one that waits for it; let the first end in any way; submit another that depends on it."""
        chance = Random(seed)
        first = self._submit(chance, [], is_delayed=False)
        self._submit(chance, [first.number])
        self.start(first.number, "w2")
        if chance.random() < 0.2:
            self.wish(first.number, "cancel", "client:a")
        self.finish(_held(first), chance.choice(ENDINGS), False)
        self._submit(chance, [first.number])

    @rule(target=Workers.attempts, seed=seeds)
    def keep_house(self, seed: int) -> Any:
        """Do one of the things for which there is no arrow, to a schedule, an attempt or a task that is over."""
        chance, held = Random(seed), [_held(task) for task in self.tasks.values() if task.state == "PROCESSING"]
        over = [task.number for task in self.tasks.values() if task.state in FINAL]
        if chance.random() < 0.4:
            self._plan(chance)
        elif held and chance.random() < 0.5:
            one = chance.choice(held)
            for _ in range(3):
                self.reach_the_timeout(one, chance.random() < 0.8)
        elif over and chance.random() < 0.8:
            self.keep_up(chance.choice(["purge", "archive", "demand"]), chance.choice(over), "watchdog:a")
        elif waiting := self._in({"PENDING"}):
            claimed = self.claim(chance.choice(sorted(SERVED)), 1)
            self.lose_an_entry(self.tasks[chance.choice(waiting)].number, chance.randrange(9), chance.random() < 0.5)
            return claimed
        return multiple()

    def _plan(self, chance: Random) -> None:
        name = chance.choice(["nightly", "often"])
        misfire, overlap = chance.choice(MISFIRES), chance.choice(OVERLAPS)
        self.register(name, Plan(chance.choice(TYPES), chance.choice(QUEUES), misfire, overlap))
        for _ in range(3):
            if chance.random() < 0.6:
                self.tend(name, chance.choice(["pause", "resume", "resume", "remove"]))
            elif len(self.tasks) <= MOST_TASKS:
                self.let_runs_come(name, chance.randint(0, 2), chance.random() < 0.5)

    def _submit(self, chance: Random, depends_on: list[int], *, is_delayed: bool | None = None) -> Model:
        number = len(self.tasks) + len(self.purged)  # of a new one
        is_delayed = chance.random() < 0.3 if is_delayed is None else is_delayed
        self.submit(Wish(number, chance.choice(TYPES), chance.choice(QUEUES), is_delayed, "", depends_on, "client:a"))
        return self.tasks[f"t{number}"]

    def _now_held(self, *task_ids: str) -> Any:
        return multiple(*(_held(self.tasks[task_id]) for task_id in task_ids if task_id in self._in(RUNNING)))

    def _follow(self, chance: Random, task: Model) -> None:
        ways = [event for state, event in TABLE if state == task.state and event in MOVES]
        if not ways:
            return
        # From some states there is much more to come than from others.
        usual = 1.0 if task.state in RUNNING else 0.1
        weights = [{Event.CANCEL: usual, Event.PAUSE: 3.0}.get(event, 1.0) for event in ways]
        number, event = task.number, chance.choices(ways, weights)[0]
        if event in WISHES:
            self.wish(number, event.lower(), "client:a")
        elif event in ENDS:
            ending = chance.choice([ending for ending in ENDINGS if ending[0] is event])
            self.finish(_held(task), ending, chance.random() < 0.5)
        elif event is Event.START:
            self.start(number, "w2")
        elif event is Event.STAGE:
            self.report(_held(task), "stage")
        elif event is Event.REQUEUE:
            self._requeue(task, "watchdog:a")
        else:
            self.let_its_time_come(number)
            self.watch("watchdog:a")

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
            if task.state in RUNNING and not task.is_overdue:
                assert task.may_run == int(fields["timeout_at"]) - int(fields["started_at"])
            used = {name: int(fields[name]) for name in COUNTERS if name in fields}
            assert (task.state, task.attempt, task.used) == (fields["state"], int(fields["attempt"]), used)
            named = [history[fields[f"h{number}"]] for number in range(1, int(fields["entries"]) + 1)]
            entries = [(entry["event"], entry["from"], entry["to"], int(entry["attempt"])) for entry in named]
            assert task.entries == entries

    @invariant()
    def is_sound(self) -> None:
        """The audit finds nothing: each index, ticket, lease and entry is where it belongs."""
        assert [] == audit(self.redis, self.keys, self.tasks)
