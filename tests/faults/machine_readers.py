"""Those who look at tasks through the API, which shows what the model says: the machine's ninth part."""

from collections import Counter
from urllib.parse import urlencode

from faults.machine_listeners import Listeners
from faults.machine_people import QUEUES, numbers
from faults.model import Model
from hypothesis.stateful import rule

BUDGETS = ("failures", "timeouts", "losses")


class Readers(Listeners):
    """Readers of the same database."""

    @rule(number=numbers)
    def look(self, number: int) -> None:
        """Look at a task, or at one that is not there (any more), and at all."""
        task = self.tasks.get(f"t{number}")
        if task:
            self._look_at(task)
        else:
            is_gone = f"t{number}" in self.purged
            assert (410 if is_gone else 404) == self.http.ask("GET", f"tasks/t{number}").status_code
        self.look_around()

    def look_around(self) -> None:
        """Look at lists, counts and queues."""
        states = Counter(task.state for task in self.tasks.values())
        assert dict(states) == {state: number for state, number in self.http.get("stats")["states"].items() if number}
        for state in sorted(states):
            assert set(self._in({state})) == self._listed(state=state)
            for queue in QUEUES:
                assert {name for name in self._in({state}) if self.tasks[name].queue == queue} == self._listed(
                    state=state, queue=queue
                )
        found = {queue["name"]: queue["state"] for queue in self.http.get("queues")["queues"]}
        assert self.paused == {name for name, state in found.items() if state == "paused"}

    def look_at_all(self) -> None:
        """Look at every task, and at what is gone."""
        for task in self.tasks.values():
            self._look_at(task)
        for task_id in self.purged:
            assert 410 == self.http.ask("GET", f"tasks/{task_id}").status_code

    def _listed(self, **wanted: str) -> set[str]:
        return {task["id"] for task in self.http.get(f"tasks?{urlencode(wanted)}")["tasks"]}

    def _look_at(self, task: Model) -> None:
        told = self.http.get(f"tasks/{task.id}")
        assert (task.state, task.attempt, task.type, task.queue) == (
            told["state"], told["attempt"], told["type"], told["queue"],
        )  # fmt: skip
        assert task.used == {name: told[name] for name in BUDGETS if told[name]}
        entries = self.http.get(f"tasks/{task.id}/history")["entries"]
        assert task.entries == [(one["event"], one["from"] or "", one["to"], one["attempt"]) for one in entries]
        assert task.state == self.http.get(f"tasks/{task.id}/explain")["state"]
        found = {one["id"]: one["state"] for one in self.http.get(f"tasks/{task.id}/deliveries")["deliveries"]}
        assert found == {name: told.state for (task_id, name), told in self.deliveries.items() if task_id == task.id}
