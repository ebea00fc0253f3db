"""Listeners that are handed what happened, and callbacks that are delivered: the machine's eighth part."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from faults.machine_crowds import Crowds
from faults.machine_people import HOOK
from faults.model import FINAL
from faults.model_listeners import Group, Holding, Told, due
from flask.testing import FlaskClient
from ghostless.jobs.client import Client
from ghostless.jobs.consumer import Consumer, Handed
from ghostless.jobs.deliveries import SHARE, Taken
from ghostless.jobs.delivery import Try
from ghostless.jobs.errors import GroupNotFound
from ghostless.jobs.keys import CALLBACKS
from ghostless.jobs.model import Entry
from ghostless.jobs.settings import Settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from redis import Redis

NEWS = "listener:news"
WANTED = {
    NEWS: frozenset({"START", "TIMEOUT", "PENDING", "FAILED", "RETRY_WAITING", "PAUSED", "CANCELLED", "SUCCESS"}),
    CALLBACKS: frozenset(FINAL),
}
HOST = HOOK.split("/")[2]

LEASE = 600.0
"""Seconds; no lease ends by itself."""

PAUSE = 3_600_000
"""Milliseconds for which a receiver wants to be left alone: as much as it may."""

STATUS = {"delivered": 204, "gone": 410, "waiting": 503}
"""What a receiver says, and what becomes of the delivery by it."""

groups = st.sampled_from(sorted(WANTED))
consumers = st.sampled_from(["l1", "l2"])


class Listeners(Crowds):
    """Listeners on the same database."""

    def __init__(self, redis: Redis, folder: Path, web: FlaskClient) -> None:
        super().__init__(redis, folder, web)
        self.listening, self.callbacks = Client(Settings(), redis).listeners, Client(Settings(), redis).deliveries
        self.entries: dict[str, Entry] = {}  # all that was handed out
        self.deliveries: dict[tuple[str, str], Told] = {}
        self.taken: dict[tuple[str, str], list[tuple[Taken, int]]] = {}  # by those who did not tell yet how it went

    @rule(group=groups, is_new=st.booleans())
    def subscribe(self, group: str, is_new: bool) -> None:
        """Let a group begin at the end of the history, or with its oldest entry, unless it is there."""
        begun = self._consumer(group, "l1").subscribe("$" if is_new else "0-0")
        assert (group not in self.groups) == begun
        if begun:
            self.groups[group] = Group(WANTED[group], group == CALLBACKS)
            if is_new:
                self.groups[group].begin(self.tasks.values())
            self.met["subscribed", "end" if is_new else "beginning"] += 1

    @rule(group=groups, name=consumers, limit=st.integers(1, 4))
    def listen(self, group: str, name: str, limit: int) -> None:
        """Be handed all there is, a few entries at a time: first what was given back, then what is new, in order."""
        consumer, model = self._consumer(group, name), self.groups.get(group)
        heard = consumer.listen(sorted(WANTED[group]), limit, "callback" if group == CALLBACKS else "")
        assert (model is None) == (heard is None)
        if not model or not heard:
            return
        handed = list(heard.handed)
        while not heard.is_all:
            heard = consumer.listen(sorted(WANTED[group]), limit, "callback" if group == CALLBACKS else "")
            assert heard
            handed += heard.handed
        self._expect_handed(model, name, handed)
        model.miss()
        status = next(status for status in self.listening.all() if status.name == group)
        found = (status.pending, status.missed, status.parked, status.behind)
        assert (len(model.held), model.missed, len(model.parked), 0) == found, (model, status)

    def _expect_handed(self, model: Group, name: str, handed: list[Handed]) -> None:
        left, to_come = set(model.of("")) - model.gone, model.to_come(self.tasks.values())
        again = [one for one in handed if one.entry.id in left]
        new = [one for one in handed if one.entry.id not in left]
        assert left == {one.entry.id for one in again}
        places = [tuple(map(int, one.entry.id.split("-"))) for one in new]
        assert len(again) == len(left)
        assert places == sorted(places)
        for one in again:
            assert model.held[one.entry.id].begun == one.begun
            model.held[one.entry.id].consumer = name
            self.met["taken over", str(bool(one.begun))] += 1
        for one in new:
            entry = (one.entry.event, one.entry.from_state, one.entry.to_state, one.entry.attempt)
            assert (entry, 0) == (to_come[one.entry.task].pop(0), one.begun)
            model.held[one.entry.id] = Holding(one.entry.task, name)
            self.entries[one.entry.id] = one.entry
            self._plan_delivery(model, one)
        assert not any(to_come.values())

    def _plan_delivery(self, model: Group, one: Handed) -> None:
        """The end of a task is to be told: it is planned once, however often that is asked for."""
        if model.is_of_callbacks:
            for _ in range(2):
                self.callbacks.plan(one.entry)
            self.deliveries.setdefault((one.entry.task, one.entry.id), Told())

    @rule(group=groups, name=consumers, act=st.sampled_from(["begin", "done", "park", "give_back", "renew", "leave"]))
    def handle(self, group: str, name: str, act: str) -> None:
        """Do something with what a listener holds: begin one, be done with it; keep all, give them back, leave."""
        model = self.groups.get(group)
        if model is None:
            return
        consumer, held = self._consumer(group, name), model.of(name)
        if act == "leave":
            consumer.dismiss(-1)  # all who hold nothing
            rows = self.redis.xinfo_consumers(self.keys.history, group)
            assert [] == [row["name"] for row in rows if not row["pending"]]
        elif act in ("begin", "done", "park") and held:
            self._handle_one(model, consumer, held[0], act)
        elif act in ("give_back", "renew"):
            getattr(consumer, act)(held)
            model.claim(held, name if act == "renew" else "")

    def _handle_one(self, model: Group, consumer: Consumer, entry_id: str, act: str) -> None:
        holding = model.held[entry_id]
        if act == "begin":
            consumer.begin(entry_id, holding.begun + 1)
            holding.begun += 1
            model.claim([entry_id], holding.consumer)
        elif act == "done":
            consumer.done([entry_id])
            model.drop(entry_id)
        else:
            consumer.park(self.entries[entry_id], holding.begun, "it broke")
            model.park(entry_id)

    @rule(group=groups)
    def replay(self, group: str) -> None:
        """Let what is parked be tried again, but for what is gone."""
        if group in self.groups:
            replayed = self.listening.replay(group)
            assert self.groups[group].replay(self.tasks) == (set(replayed.again), set(replayed.gone))
            self.met["replayed", str(bool(replayed.again))] += 1

    @rule(group=groups)
    def remove_group(self, group: str) -> None:
        """Remove a group, with all that is parked in it; it may not be there."""
        is_there = self.groups.pop(group, None) is not None
        with nullcontext() if is_there else pytest.raises(GroupNotFound):
            self.listening.remove(group)

    def _consumer(self, group: str, name: str) -> Consumer:
        return Consumer(self.listening, group, name, LEASE)

    # Callbacks

    @precondition(lambda self: self.deliveries)
    @rule(most=st.integers(1, 6), under_way=st.integers(0, SHARE))
    def take(self, most: int, under_way: int) -> None:
        """Take callbacks to deliver: only those whose time has come, and no more to one host than its share."""
        self.pass_a_moment()  # else two may tell the same of the same try
        found = self.callbacks.take(most, {HOST: under_way})
        there = due(self.deliveries)
        assert min(most, SHARE - under_way, len(there)) == len(found)
        for taken in found:
            name = taken.delivery.entry.task, taken.delivery.id
            assert name in there
            told = self.deliveries[name]
            told.is_due, told.is_taken = False, True
            self.taken.setdefault(name, []).append((taken, told.version))

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), outcome=st.sampled_from(sorted(STATUS)))
    def note(self, data: st.DataObject, outcome: str) -> None:
        """Note how a delivery went, be it that somebody else took it meanwhile: only the first to tell is heard."""
        self.tell(data.draw(st.sampled_from(sorted(self.taken))), data.draw(st.booleans()), outcome)

    def tell(self, name: tuple[str, str], is_first: bool, outcome: str) -> None:
        """Note how a delivery went that was taken first, or last."""
        taken, version = self.taken[name].pop(0 if is_first else -1)
        if not self.taken[name]:
            del self.taken[name]
        after, wait = taken.delivery.tried(Try(taken.at, 1, STATUS[outcome]), PAUSE, 0.5)
        is_heard = self.deliveries[name].tried(version, outcome)
        assert is_heard == self.callbacks.note(taken, after, wait)
        self.met["delivery", outcome if is_heard else "told too late"] += 1

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), is_http=st.booleans())
    def redeliver(self, data: st.DataObject, is_http: bool) -> None:
        """Let a delivery be tried once more, whatever became of it."""
        self.ask_again(data.draw(st.sampled_from(sorted(self.deliveries))), is_http)

    def ask_again(self, name: tuple[str, str], is_http: bool) -> None:
        """Let a delivery be tried once more."""
        if is_http:
            assert 202 == self.http.ask("POST", "tasks/{}/deliveries/{}/redeliver".format(*name)).status_code
        else:
            self.callbacks.redeliver(*name)
        self.deliveries[name].anew()

    @precondition(lambda self: self.deliveries)
    @rule()
    def let_deliveries_come(self) -> None:
        """End the time that deliveries wait for, and that of those who took some and are gone."""
        for name, told in self.deliveries.items():
            if told.state == "waiting":
                self.redis.zadd(self.keys.due_deliveries(HOST), {" ".join(name): 1})
                self.redis.zadd(self.keys.due_receivers, {HOST: 1})
                told.is_due, told.is_taken = True, False

    @invariant()
    def deliveries_agree(self) -> None:
        """Each delivery is as the model says; there are no others."""
        found = {
            (task_id, one.delivery.id): str(one.delivery.state)
            for task_id in {task_id for task_id, _ in self.deliveries}
            for one in self.callbacks.of_task(task_id)
        }
        assert {name: told.state for name, told in self.deliveries.items()} == found
