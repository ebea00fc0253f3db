"""Operators who have one wish for many tasks, which watchdogs work off page by page: the machine's second part."""

from dataclasses import dataclass

from faults.machine_people import People, actors, types
from faults.model import Model, settle
from flask.testing import FlaskClient
from ghostless.jobs.bulk import ACTIONS, BulkFilter, BulkRequest
from ghostless.jobs.bulk_actions import KEPT_FOR, LOOKS, PAGE_TIME, BulkActions
from ghostless.jobs.errors import BulkActionNotFound
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from redis import Redis

GOES_AFTER = {"cancel", "pause"}
"""These are meant for a task however far it has come meanwhile; the others for what it was before only."""

PASSES = 10**6
"""Times that an action goes over the states, at most: here others may move tasks behind its back for ever."""

MOVED_FROM = {
    "cancel": {"SCHEDULED", "BLOCKED", "PENDING", "PROCESSING", "PAUSING", "PAUSED", "RETRY_WAITING"},
    "pause": {"PENDING", "PROCESSING", "RETRY_WAITING"},
    "resume": {"PAUSED", "PAUSING"},
    "retry": {"FAILED", "TIMEOUT_CANCELLED"},
}


@dataclass
class Bulk:
    """One bulk action, and the tasks that it is for, each with how often it had moved when the action began."""

    verb: str
    tasks: dict[str, int]
    number: int = 0  # of moves

    def is_for(self, task: Model) -> bool:
        """Whether it would move a task now."""
        is_as_before = self.verb in GOES_AFTER or self.tasks.get(task.id) == moves(task)
        return task.id in self.tasks and is_as_before and task.state in MOVED_FROM[self.verb]


def moves(task: Model) -> int:
    """Return how often a task went to another state."""
    return sum(source != target for _, source, target, _ in task.entries)


class Operators(People):
    """Bulk actions on the same database."""

    def __init__(self, redis: Redis, web: FlaskClient) -> None:
        super().__init__(redis, web)
        self.bulk = BulkActions(self.store)
        self.running: dict[str, Bulk] = {}  # in the order of their turns

    @rule(verb=st.sampled_from(sorted(ACTIONS)), task_type=types, actor=actors, is_http=st.booleans())
    def wish_for_all(self, verb: str, task_type: str, actor: str, is_http: bool) -> None:
        """Ask for something to be done to all tasks of a type, and let watchdogs work that off at once."""
        bulk_id = self._begin(verb, task_type, actor, is_http)
        while bulk_id in self.running:
            self.work_a_page(LOOKS)

    @precondition(lambda self: len(self.running) < 3)
    @rule(verb=st.sampled_from(sorted(ACTIONS)), task_type=types, actor=actors, is_http=st.booleans())
    def begin_for_all(self, verb: str, task_type: str, actor: str, is_http: bool) -> None:
        """Ask for it, and do no more."""
        self._begin(verb, task_type, actor, is_http)

    def _begin(self, verb: str, task_type: str, actor: str, is_http: bool) -> str:
        if is_http:
            answer = self.http.ask("POST", f"tasks/bulk/{verb}", {"filter": {"type": task_type}})
            assert 202 == answer.status_code
            bulk_id = str((answer.json or {})["id"])
        else:
            bulk_id = self.bulk.begin(BulkRequest(verb, BulkFilter(type=task_type)), actor).bulk_id
        self.pass_a_moment()  # who is submitted in the same millisecond counts as there before
        meant = {task.id: moves(task) for task in self.tasks.values() if task.type == task_type}
        self.running[bulk_id] = Bulk(verb, meant)
        return bulk_id

    @precondition(lambda self: self.running)
    @rule(looks=st.integers(1, 2))
    def work_a_page(self, looks: int) -> None:
        """Let a watchdog look at so many tasks for the action whose turn it is: only what it is for moves."""
        bulk_id, bulk = next(iter(self.running.items()))
        last = self.redis.xinfo_stream(self.keys.history)["last-generated-id"]
        more, moved, *problems = self.store.scripts.call("work_bulk", (), (looks, PAGE_TIME, KEPT_FOR, PASSES))
        new = self.redis.xrange(self.keys.history, f"({last}")
        acted = [entry["task"] for _, entry in new if f"bulk action {bulk_id}" in entry["message"]]
        assert (moved, []) == (len(acted), problems)
        for task_id in acted:
            assert bulk.is_for(self.tasks[task_id])
            getattr(self.tasks[task_id], bulk.verb)()
            settle(self.tasks)
        bulk.number += moved
        self._go_on(bulk_id, bulk)
        assert bool(self.running) == bool(more)

    def _go_on(self, bulk_id: str, bulk: Bulk) -> None:
        """Another one has its turn; one that is through has left nothing that it is for."""
        del self.running[bulk_id]
        told = self.http.get(f"bulk/{bulk_id}")
        assert bulk.number == told["counts"]["moved"]
        if told["state"] == "running":
            self.running[bulk_id] = bulk
        else:
            assert ("done", []) == (told["state"], [task.id for task in self.tasks.values() if bulk.is_for(task)])
            self.met["bulk", bulk.verb] += 1

    @rule(data=st.data(), actor=actors, is_http=st.booleans())
    def stop_in_the_middle(self, data: st.DataObject, actor: str, is_http: bool) -> None:
        """Stop a bulk action: what it did stays done, and it does no more."""
        self.stop(data.draw(st.sampled_from([*self.running, "nobody-knows"])), actor, is_http)

    def stop(self, bulk_id: str, actor: str, is_http: bool) -> None:
        """Stop a bulk action, if there is one."""
        bulk = self.running.pop(bulk_id, None)
        assert (bulk is not None) == self._stop(bulk_id, actor, is_http)
        if bulk:
            told = self.http.get(f"bulk/{bulk_id}")
            assert ("stopped", bulk.number) == (told["state"], told["counts"]["moved"])
            self.met["stopped", "midway" if bulk.number else "at once"] += 1
            assert not self.bulk.stop(bulk_id, actor)

    def _stop(self, bulk_id: str, actor: str, is_http: bool) -> bool:
        if is_http:
            return self.http.ask("POST", f"bulk/{bulk_id}/stop", {}).status_code == 200
        try:
            return self.bulk.stop(bulk_id, actor)
        except BulkActionNotFound:
            return False

    def pass_a_moment(self) -> int:
        """Wait for the next millisecond of Redis' time, and return it."""
        moment = now = self._now()
        while now == moment:
            now = self._now()
        return now

    def _now(self) -> int:
        seconds, micros = self.redis.time()  # type: ignore[misc]
        return seconds * 1000 + micros // 1000
