"""People who submit tasks and have wishes about them, and what they are to be told: the first part of the machine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from faults.machine_base import Base
from faults.model import EXTENSION, FINAL, LONGEST_RUN, TIMEOUT, Model
from flask.testing import FlaskClient
from ghostless.jobs.catalog import PublishedType
from ghostless.jobs.keys import CALLBACKS
from ghostless.jobs.messages import Answer, Submission
from ghostless.jobs.submission import Request
from ghostless.statemachine import Policy
from hypothesis import strategies as st
from hypothesis.stateful import rule
from redis import Redis

FAR = 10**12
"""Milliseconds of every waiting time: it is over when a rule says so, not before."""

DELAY = 300 * 86_400
"""Seconds that a submit asks for: as much as it may."""

POLICY = Policy(
    max_retries=1, max_timeouts=1, max_losses=1, backoff_base=FAR, backoff_cap=FAR,
    timeout=TIMEOUT, extend_by=EXTENSION, max_runtime=LONGEST_RUN,
)  # fmt: skip
QUEUES = ("q1", "q2")
TYPES = ("demo.add", "demo.sub")
HOOK = "https://hooks.example.com/ended"
MOST = 6

numbers = st.integers(0, MOST - 1)  # of a task, in the order of their submits; beyond the last one, of none
types = st.sampled_from(TYPES)
queues = st.sampled_from(QUEUES)
actors = st.sampled_from(["client:a", "client:b"])


def kind(name: str, _params: object = None) -> PublishedType:
    """Return a type as it is published."""
    return PublishedType(name, "q1", POLICY, {"type": "object"}, "")


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
    has_callback: bool = False

    def request(self, task_id: str) -> Request:
        """Return it as the product takes it."""
        return Request(
            self.type, {}, task_id, self.queue, delay=DELAY if self.is_delayed else None,
            idempotency_key=self.key or None, callback_url=HOOK if self.has_callback else None,
            depends_on=[other for number in self.depends_on if (other := f"t{number}") != task_id],
        )  # fmt: skip


wishes = st.builds(
    Wish,
    number=st.just(MOST) | numbers,
    type=types,
    queue=queues,
    is_delayed=st.booleans(),
    key=st.sampled_from(["", "", "order-7", "order-8"]),
    depends_on=st.lists(numbers, max_size=2, unique=True),
    actor=actors,
    has_callback=st.booleans(),
)


class People(Base):
    """Clients of one database."""

    def __init__(self, redis: Redis, web: FlaskClient) -> None:
        super().__init__(redis, web)
        self.under_key: dict[str, str] = {}  # idempotency key -> id
        self.wishes: list[Wish] = []

    @rule(wish=wishes, is_http=st.booleans())
    def submit(self, wish: Wish, is_http: bool = False) -> None:
        """Submit a task, or one that is there already."""
        self.wishes.append(wish)
        request = wish.request(self._id_for(wish))
        told = self.http.submit(request) if is_http else self.store.submit(self._submission(wish))
        self._expect_accepted(wish, request, told)

    @rule(data=st.data(), under_its_id=st.booleans(), is_http=st.booleans())
    def submit_again(self, data: st.DataObject, under_its_id: bool, is_http: bool) -> None:
        """Ask once more for what was asked for, as when the reply was lost, under the same id or a new one."""
        wish = data.draw(st.sampled_from(self.wishes))
        self.submit(wish if under_its_id else replace(wish, number=MOST), is_http)

    @rule(together=st.lists(wishes, min_size=2, max_size=3))
    def submit_together(self, together: list[Wish]) -> None:
        """Submit several in one round trip: each is answered as if it came alone."""
        requests = [wish.request(self._id_for(wish)) for wish in together]
        answers = self.store.submit_many(list(map(self._submission, together)))
        for wish, request, told in zip(together, requests, answers, strict=True):
            assert isinstance(told, Answer)
            self._expect_accepted(wish, request, told)

    @rule(
        number=numbers,
        verb=st.sampled_from(["cancel", "pause", "resume", "retry"]),
        actor=actors,
        is_http=st.booleans(),
    )
    def wish(self, number: int, verb: str, actor: str, is_http: bool = False) -> None:
        """Ask for a task to be cancelled, paused, resumed or retried."""
        task_id = f"t{number}"
        told = getattr(self.door(is_http), verb)(task_id, actor)
        self._expect(task_id, told, lambda task: getattr(task, verb)())

    def _id_for(self, wish: Wish) -> str:
        return f"t{min(wish.number, len(self.tasks) + len(self.purged))}"

    def _submission(self, wish: Wish) -> Submission:
        return wish.request(self._id_for(wish)).checked(wish.actor, kind)

    def _expect_accepted(self, wish: Wish, request: Request, told: Answer) -> None:
        known = str(request.id)
        if known not in self.tasks | self.purged:
            known = self.under_key.get(wish.key, "")
        if known in self.purged:
            assert ("purged", known) == (told.word, told.task_id)
        elif known:
            is_same = self.tasks[known].fingerprint == _fingerprint(request)
            assert ("already" if is_same else "conflict", known) == (told.word, told.task_id)
        else:
            self._expect_new(wish, request, told)

    def _expect_new(self, wish: Wish, request: Request, told: Answer) -> None:
        states = {task_id: task.state for task_id, task in self.tasks.items()} | self.purged
        unknown = [other for other in request.depends_on if other not in states]
        if unknown:
            assert ("unknown", unknown) == (told.word, list(told.unknown))
            return
        if wish.has_callback and CALLBACKS not in self.groups:
            assert "unserved" == told.word
            self.met["unserved",] += 1
            return
        task = Model(str(request.id), wish.type, wish.queue, _fingerprint(request), has_callback=wish.has_callback)
        self.tasks[task.id] = task
        if wish.key:
            self.under_key[wish.key] = task.id
        awaited = {other: states[other] for other in request.depends_on}
        unmet = {other for other, state in awaited.items() if state not in FINAL}
        ends = set(awaited.values()) & FINAL
        assert (task.submit(wish.is_delayed, unmet, ends), task.id, task.state) == (told.word, told.task_id, told.state)


def _fingerprint(request: Request) -> str:
    """Return what tells it from another wish under the same id or key."""
    return f"{request.type} {sorted(request.depends_on)} {request.callback_url}"
