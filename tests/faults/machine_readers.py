"""Those who look at tasks through the API, which shows what the model says: the machine's ninth part."""

from collections import Counter
from pathlib import Path
from urllib.parse import urlencode

from faults.machine_listeners import Listeners
from faults.machine_people import TYPES, numbers
from faults.model import Model
from flask.testing import FlaskClient
from hypothesis import strategies as st
from hypothesis.stateful import rule
from redis import Redis

BUDGETS = ("failures", "timeouts", "losses")


class Readers(Listeners):
    """Readers of the same database."""

    def __init__(self, redis: Redis, folder: Path, web: FlaskClient) -> None:
        super().__init__(redis, folder, web)
        self.published = set(TYPES)

    @rule(number=numbers)
    def look(self, number: int) -> None:
        """Look at a task, or at one that is not there (any more), and at all."""
        task = self.tasks.get(f"t{number}")
        if task:
            self._look_at(task)
            assert task.state == self.http.get(f"tasks/{task.id}/explain")["state"]
        else:
            is_gone = f"t{number}" in self.purged
            assert (410 if is_gone else 404) == self.http.ask("GET", f"tasks/t{number}").status_code
        self.look_around()

    @rule(name=st.sampled_from(["far.add", "far.sub"]))
    def publish_over_http(self, name: str) -> None:
        """Publish a type, as a worker over HTTP does: whoever asks sees it."""
        assert 200 == self.http.ask("PUT", f"types/{name}", {"schema": {"type": "object"}}).status_code
        self.published.add(name)
        assert self.published == {kind["name"] for kind in self.http.get("types")["types"]}

    def look_around(self) -> None:
        """Look at lists, counts and queues."""
        states = Counter(task.state for task in self.tasks.values())
        assert dict(states) == {state: number for state, number in self.http.get("stats")["states"].items() if number}
        tasks = {(task.id, task.state, task.queue) for task in self.tasks.values()}
        assert tasks == self._listed()
        if tasks:
            state, queue = min(tasks)[1:]
            assert {one for one in tasks if one[1:] == (state, queue)} == self._listed(state=state, queue=queue)
        found = {queue["name"]: queue["state"] for queue in self.http.get("queues")["queues"]}
        assert self.paused == {name for name, state in found.items() if state == "paused"}

    def look_at_all(self) -> None:
        """Look at every task, and at what is gone."""
        for task in self.tasks.values():
            self._look_at(task)
        for task_id in self.purged:
            assert 410 == self.http.ask("GET", f"tasks/{task_id}").status_code

    def _listed(self, **wanted: str) -> set[tuple[str, str, str]]:
        found = self.http.get(f"tasks?{urlencode(wanted)}")["tasks"]
        return {(task["id"], task["state"], task["queue"]) for task in found}

    def _look_at(self, task: Model) -> None:
        told = self.http.get(f"tasks/{task.id}")
        assert (task.state, task.attempt, task.type, task.queue) == (
            told["state"], told["attempt"], told["type"], told["queue"],
        )  # fmt: skip
        assert task.used == {name: told[name] for name in BUDGETS if told[name]}
        entries = self.http.get(f"tasks/{task.id}/history")["entries"]
        assert task.entries == [(one["event"], one["from"] or "", one["to"], one["attempt"]) for one in entries]
        if not task.has_callback:
            return
        found = {one["id"]: one["state"] for one in self.http.get(f"tasks/{task.id}/deliveries")["deliveries"]}
        assert found == {name: told.state for (task_id, name), told in self.deliveries.items() if task_id == task.id}
