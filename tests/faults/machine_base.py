"""What all parts of the machine stand on: a database, what each task should be, what must hold after each step."""

import itertools
from collections import Counter
from collections.abc import Callable

from audit import audit
from faults.machine_http import DONE, Http
from faults.model import RUNNING, Model, settle
from faults.model_listeners import Group
from flask.testing import FlaskClient
from ghostless.jobs.messages import Answer, Claim
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant
from redis import Redis

COUNTERS = ("failures", "timeouts", "losses")


class Base(RuleBasedStateMachine):
    """One database, and what each task in it should be."""

    def __init__(self, redis: Redis, web: FlaskClient) -> None:
        super().__init__()
        self.redis = redis
        self.store = Store(redis, Settings())
        self.http = Http(web)
        self.keys = self.store.keys
        self.tasks: dict[str, Model] = {}
        self.purged: dict[str, str] = {}  # id -> how it ended
        self.paused: set[str] = set()
        self.groups: dict[str, Group] = {}
        self.claims: dict[str, Claim] = {}  # the last one of each worker
        self.tokens = map("{:016x}".format, itertools.count())
        self.met: Counter[tuple[str, ...]] = Counter()  # how often what happened

    def door(self, is_http: bool) -> Store | Http:
        """Return where to ask: both have the same verbs, which mean the same."""
        return self.http if is_http else self.store

    def forget(self, task: Model) -> None:
        """Take a task out: its retention is over."""
        del self.tasks[task.id]
        self.met.update(task.met)
        for group in self.groups.values():
            group.forget(task)

    def _expect(self, task_id: str, told: Answer, judge: Callable[[Model], str]) -> None:
        task = self.tasks.get(task_id)
        if task is None:
            assert "missing" == told.word
            return
        word = judge(task)
        assert told.word == (DONE.get(word, word) if told.word == "done" else word)
        assert (task.state, task.attempt) == (told.state, told.attempt)
        settle(self.tasks)

    def _in(self, states: set[str]) -> list[str]:
        return [task.id for task in self.tasks.values() if task.state in states]

    def _one_in(self, states: set[str], data: st.DataObject) -> Model:
        return self.tasks[data.draw(st.sampled_from(self._in(states)))]

    # What must hold after each step

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
        found = audit(self.redis, self.keys, self.tasks)
        assert not found, found
