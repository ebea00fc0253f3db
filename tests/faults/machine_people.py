"""People who submit tasks and have wishes about them, and what they are to be told: the first part of the machine."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from faults.model import EXTENSION, FINAL, LONGEST_RUN, TIMEOUT, Model, settle
from ghostless.jobs.bulk import ACTIONS, BulkFilter, BulkRequest
from ghostless.jobs.bulk_actions import BulkActions
from ghostless.jobs.messages import Answer, Claim, Submission
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.statemachine import Policy
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from redis import Redis

FAR = 10**12
"""Milliseconds of every waiting time: it is over when a rule says so, not before."""

POLICY = Policy(
    max_retries=1, max_timeouts=1, max_losses=1, backoff_base=FAR, backoff_cap=FAR,
    timeout=TIMEOUT, extend_by=EXTENSION, max_runtime=LONGEST_RUN,
)  # fmt: skip
QUEUES = ("q1", "q2")
TYPES = ("demo.add", "demo.sub")
MOST = 6

numbers = st.integers(0, MOST - 1)  # of a task, in the order of their submits; beyond the last one, of none
types = st.sampled_from(TYPES)
queues = st.sampled_from(QUEUES)
actors = st.sampled_from(["client:a", "client:b"])


@dataclass(frozen=True)
class Wish:
    """What somebody submits."""

    number: int
    type: str
    queue: str
    is_delayed: bool
    key: str
    depends_on: Sequence[int]
    actor: str

    @property
    def fingerprint(self) -> str:
        """What tells it from another wish under the same id or key."""
        return f"{self.type} {self.depends_on}"


wishes = st.builds(
    Wish,
    number=st.just(MOST) | numbers,
    type=types,
    queue=queues,
    is_delayed=st.booleans(),
    key=st.sampled_from(["", "", "order-7", "order-8"]),
    depends_on=st.lists(numbers, max_size=2, unique=True),
    actor=actors,
)


class People(RuleBasedStateMachine):
    """Clients of one database, and what each task should be."""

    def __init__(self, redis: Redis) -> None:
        super().__init__()
        self.redis = redis
        self.store = Store(redis, Settings())
        self.keys = self.store.keys
        self.tasks: dict[str, Model] = {}
        self.purged: dict[str, str] = {}  # id -> how it ended
        self.under_key: dict[str, str] = {}  # idempotency key -> id
        self.wishes: list[Wish] = []
        self.paused: set[str] = set()
        self.claims: dict[str, Claim] = {}  # the last one of each worker
        self.tokens = map("{:04x}".format, itertools.count())
        self.met: Counter[tuple[str, ...]] = Counter()  # how often what happened

    @rule(wish=wishes)
    def submit(self, wish: Wish) -> None:
        """Submit a task, or one that is there already."""
        self.wishes.append(wish)
        submission = self._submission(wish)
        self._expect_accepted(wish, submission, self.store.submit(submission))

    @rule(data=st.data(), under_its_id=st.booleans())
    def submit_again(self, data: st.DataObject, under_its_id: bool) -> None:
        """Ask once more for what was asked for, as when the reply was lost, under the same id or a new one."""
        wish = data.draw(st.sampled_from(self.wishes))
        self.submit(wish if under_its_id else replace(wish, number=MOST))

    @rule(together=st.lists(wishes, min_size=2, max_size=3))
    def submit_together(self, together: list[Wish]) -> None:
        """Submit several in one round trip: each is answered as if it came alone."""
        submissions = [self._submission(wish) for wish in together]
        for wish, submission, told in zip(together, submissions, self.store.submit_many(submissions), strict=True):
            assert isinstance(told, Answer)
            self._expect_accepted(wish, submission, told)

    @rule(number=numbers, verb=st.sampled_from(["cancel", "pause", "resume", "retry"]), actor=actors)
    def wish(self, number: int, verb: str, actor: str) -> None:
        """Ask for a task to be cancelled, paused, resumed or retried."""
        task_id = f"t{number}"
        self._expect(task_id, getattr(self.store, verb)(task_id, actor), lambda task: getattr(task, verb)())

    @rule(verb=st.sampled_from(sorted(ACTIONS)), task_type=types, actor=actors)
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

    def _submission(self, wish: Wish) -> Submission:
        task_id = f"t{min(wish.number, len(self.tasks) + len(self.purged))}"
        return Submission(
            task_id, wish.type, wish.queue, POLICY, "{}", wish.fingerprint, delay=FAR * wish.is_delayed,
            idempotency_key=wish.key, actor=wish.actor, depends_on=tuple(f"t{number}" for number in wish.depends_on),
        )  # fmt: skip

    def _expect_accepted(self, wish: Wish, submission: Submission, told: Answer) -> None:
        known = submission.task_id
        if known not in self.tasks | self.purged:
            known = self.under_key.get(wish.key, "")
        if known in self.purged:
            assert ("purged", known) == (told.word, told.task_id)
        elif known:
            is_same = self.tasks[known].fingerprint == submission.fingerprint
            assert ("already" if is_same else "conflict", known) == (told.word, told.task_id)
        else:
            self._expect_new(wish, submission, told)

    def _expect_new(self, wish: Wish, submission: Submission, told: Answer) -> None:
        states = {task_id: task.state for task_id, task in self.tasks.items()} | self.purged
        unknown = [other for other in submission.depends_on if other not in states]
        if unknown:
            assert ("unknown", unknown) == (told.word, list(told.unknown))
            return
        task = Model(submission.task_id, wish.type, wish.queue, submission.fingerprint)
        self.tasks[task.id] = task
        if wish.key:
            self.under_key[wish.key] = task.id
        awaited = {other: states[other] for other in submission.depends_on}
        unmet = {other for other, state in awaited.items() if state not in FINAL}
        ends = set(awaited.values()) & FINAL
        assert (task.submit(wish.is_delayed, unmet, ends), task.id) == (told.word, told.task_id)

    def _expect(self, task_id: str, told: Answer, judge: Callable[[Model], str]) -> None:
        task = self.tasks.get(task_id)
        if task is None:
            assert "missing" == told.word
        else:
            assert (judge(task), task.state, task.attempt) == (told.word, told.state, told.attempt)
            settle(self.tasks)
