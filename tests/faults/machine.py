"""Clients, workers and watchdogs that do whatever Hypothesis thinks of, and a model that says what is to follow."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from faults.machine_listeners import NEWS, STATUS, WANTED
from faults.machine_people import MOST, QUEUES, TYPES, Wish
from faults.machine_plans import MOST_TASKS
from faults.machine_readers import Readers
from faults.machine_workers import ENDINGS, SERVED, Workers
from faults.model import FINAL, RUNNING, Model
from faults.model_plans import Plan
from flask.testing import FlaskClient
from ghostless.jobs.bulk import ACTIONS
from ghostless.jobs.keys import CALLBACKS
from ghostless.jobs.messages import Held
from ghostless.jobs.recurrence import MISFIRES, OVERLAPS
from ghostless.statemachine import TABLE, Event, Reason
from hypothesis import strategies as st
from hypothesis.stateful import initialize, multiple, precondition, rule
from redis import Redis

WISHES = {Event.CANCEL, Event.PAUSE, Event.RESUME, Event.RETRY}
ENDS = {event for event, _ in ENDINGS}
MOVES = {*WISHES, *ENDS, Event.START, Event.STAGE, Event.REQUEUE, Event.RELEASE}
"""The events of the table that somebody brings about; the others follow from them, or change no state."""

seeds = st.integers(0, 2**32 - 1)
"""Of an even chance; Hypothesis itself prefers extreme values, and repeats what it did before."""


def _held(task: Model) -> Held:
    return Held(task.id, task.attempt, task.token)


class Machine(Readers):
    """Clients, workers and watchdogs on one database, and what each task should be. `reached` counts what was met."""

    def __init__(self, redis: Redis, folder: Path, web: FlaskClient, reached: Counter[tuple[str, ...]]) -> None:
        super().__init__(redis, folder, web)
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
        for group in WANTED:
            if chance.random() < 0.7:
                self.subscribe(group, chance.random() < 0.5)
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
        self.finish(_held(first), chance.choice(ENDINGS), False, chance.random() < 0.5)
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
        elif held and chance.random() < 0.3:
            one = self.tasks[chance.choice(held).task_id]
            self.lose(one.number, one.attempt, chance.choice([one.worker, "w1"]))
        elif self.tasks and chance.random() < 0.3:
            number = chance.choice(list(self.tasks.values())).number
            what = chance.choice(["hold", "let_go", "let_go", "unpark", "recheck"])
            self.keep_up(what, number, chance.choice(["watchdog:a", "watchdog:b"]))
            self.publish_over_http("far.add")
        elif over and chance.random() < 0.8:
            self.keep_up(chance.choice(["purge", "archive", "demand"]), chance.choice(over), "watchdog:a")
        elif waiting := self._in({"PENDING"}):
            worker = chance.choice(sorted(SERVED))
            claimed = self.claim_over_http(worker, "q1") if chance.random() < 0.5 else self.claim(worker, 1)
            self.lose_an_entry(self.tasks[chance.choice(waiting)].number, chance.randrange(9), chance.random() < 0.5)
            return claimed
        return multiple()

    @rule(target=Workers.attempts, seed=seeds)
    def act_for_many(self, seed: int) -> Any:
        """Do one of the things that are done to several tasks, or beside them."""
        chance = Random(seed)
        acts = (self._bulk, self._listen, self._deliver, self._team, self._plain, self._ask_twice)
        return chance.choice(acts)(chance)

    def _bulk(self, chance: Random) -> Any:
        verbs = sorted(ACTIONS)
        if chance.random() < 0.5:
            self._hand_back()
            verbs = ["cancel", "pause", "pause"]
        if len(self.running) < 2 and chance.random() < 0.7:
            self.begin_for_all(chance.choice(verbs), chance.choice(TYPES), "client:a", chance.random() < 0.3)
        if chance.random() < 0.5:
            for task in chance.sample(list(self.tasks.values()), min(2, len(self.tasks))):
                self.wish(task.number, chance.choice(["pause", "pause", "resume", "retry"]), "client:a")
        for _ in range(chance.choice([1, 3, 100])):
            if self.running:
                self.work_a_page(1)
        if self.running and chance.random() < 0.4:
            self.stop(chance.choice(sorted(self.running)), "client:b", chance.random() < 0.5)
        return multiple()

    def _hand_back(self) -> None:
        """Let a worker hand back all at once what it has: these enter their next state in the same moment."""
        for task_id in self._in({"PENDING"})[:4]:
            self.start(self.tasks[task_id].number, "w2")
        held = [_held(self.tasks[task_id]) for task_id in self._in({"PROCESSING"})]
        if held:
            self.finish_together([(one, (Event.SUSPEND, Reason.SHUTDOWN)) for one in held], "w2", False)

    def _listen(self, chance: Random) -> Any:
        if NEWS not in self.groups:
            self.subscribe(NEWS, chance.random() < 0.5)
        for group in sorted(self.groups):
            name, other = chance.choice([("l1", "l2"), ("l2", "l1"), ("l1", "l1")])
            self.listen(group, name, chance.randint(1, 4))
            for act in chance.sample(["begin", "begin", "done", "done", "park", "renew", "give_back", "leave"], 5):
                self.handle(group, name, act)
            if chance.random() < 0.3:
                self.replay(group)
            self.listen(group, other, chance.randint(1, 4))
        if chance.random() < 0.1:
            self.remove_group(NEWS)
        return multiple()

    def _deliver(self, chance: Random) -> Any:
        if CALLBACKS in self.groups:
            self.listen(CALLBACKS, "l1", 4)
        else:  # so nobody would tell of this one's end
            number = len(self.tasks) + len(self.purged)
            self.submit(Wish(number, TYPES[0], QUEUES[0], False, "", [], "client:a", True), chance.random() < 0.5)
        for _ in range(4):
            if self.deliveries and chance.random() < 0.6:
                self.let_deliveries_come()
            if self.deliveries:
                self.take(chance.randint(1, 6), chance.randint(0, 3))
            if self.taken and chance.random() < 0.7:
                self.tell(chance.choice(sorted(self.taken)), chance.random() < 0.5, chance.choice(sorted(STATUS)))
            elif self.deliveries:
                self.ask_again(chance.choice(sorted(self.deliveries)), chance.random() < 0.5)
        return multiple()

    def _team(self, chance: Random) -> Any:
        for task_id in self._in({"PENDING"})[:3]:
            if chance.random() < 0.7:
                self.start(self.tasks[task_id].number, "w2")
        held = [_held(self.tasks[task_id]) for task_id in self._in(RUNNING)]
        for one in held:
            verb = chance.choice(["heartbeat", "progress", "checkpoint", "log", "stage"])
            self.report(one, verb, chance.random() < 0.5)
        held += [Held("t0", 1, "0" * 16), Held("nobody", 1, "0" * 16)]
        self.beat_together(held[:3])
        several = [(one, chance.choice(ENDINGS)) for one in chance.sample(held, min(3, len(held)))]
        claimed = self.finish_together(several, "w1", chance.random() < 0.5)
        for one, _ in several:  # of an end that was told already, or of another one than that
            self.finish(one, chance.choice(ENDINGS), True, True)
        return claimed

    def _ask_twice(self, chance: Random) -> Any:
        number = len(self.tasks) + len(self.purged)
        key = chance.choice(["order-7", "order-8"])
        wish = Wish(number, chance.choice(TYPES), chance.choice(QUEUES), False, key, [], "client:a")
        for again in (wish, replace(wish, number=number + 1)):
            self.submit(again, chance.random() < 0.5)
        return multiple()

    def _plain(self, chance: Random) -> Any:
        queue = chance.choice(QUEUES)
        self.enqueue_plain(queue)
        claimed = self.claim(chance.choice(sorted(SERVED)), chance.randint(1, 3))
        if self.begun:
            self.be_done_with(chance.choice(self.begun), chance.random() < 0.5)
        return claimed

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
        has_callback = CALLBACKS in self.groups and chance.random() < 0.5
        wish = Wish(
            number, chance.choice(TYPES), chance.choice(QUEUES), is_delayed, "", depends_on, "client:a", has_callback
        )
        self.submit(wish, chance.random() < 0.2)
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
        # What was not reached yet comes first.
        weights = [w if self._reached[task.state, event] else 10.0 for w, event in zip(weights, ways, strict=True)]
        number, event = task.number, chance.choices(ways, weights)[0]
        is_http = chance.random() < 0.4
        if event in WISHES:
            self.wish(number, event.lower(), "client:a", is_http)
        elif event in ENDS:
            ending = chance.choice([ending for ending in ENDINGS if ending[0] is event])
            self.finish(_held(task), ending, chance.random() < 0.5, is_http)
        elif event is Event.START:
            self.start(number, "w2")
        elif event is Event.STAGE:
            self.report(_held(task), "stage")
        elif event is Event.REQUEUE:
            self._requeue(task, "watchdog:a")
        else:
            self.let_its_time_come(number)
            self.watch("watchdog:a")
