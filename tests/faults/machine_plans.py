"""People who register schedules, and schedulers that submit their runs: the machine's fifth part."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from faults.machine_people import FAR, POLICY, QUEUES, TYPES, types
from faults.machine_people import queues as queue_names
from faults.machine_teams import Teams
from faults.model import FINAL, Model
from faults.model_plans import Plan
from flask.testing import FlaskClient
from ghostless.jobs.client import Client
from ghostless.jobs.errors import ScheduleNotFound
from ghostless.jobs.recurrence import MISFIRES, OVERLAPS, Recurrence
from ghostless.jobs.scheduler import Scheduler
from ghostless.jobs.schedules import Schedule
from ghostless.jobs.settings import Settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from redis import Redis

EVERY = 3_600_000
"""Milliseconds between two runs of each schedule: none is due before a rule says so."""

MOST_TASKS = 12
"""Tasks up to which runs become due."""

names = st.sampled_from(["nightly", "often"])
plans = st.builds(Plan, types, queue_names, st.sampled_from(MISFIRES), st.sampled_from(OVERLAPS))


class _Numbering(Client):
    """A client whose tasks have the ids of the machine."""

    ids: Iterator[str]

    def submit(self, *arguments: Any, **wishes: Any) -> Any:
        """Submit a task under the next id, which stays free when there was the same submit before."""
        return super().submit(*arguments, **wishes, id=next(self.ids))


class _Forgetful(Scheduler):
    """One that dies after it submitted, before it noted that it did."""

    def _fire(self, schedule: Schedule, now: int) -> bool:
        noted, self.schedules = self.schedules, _Deaf()  # type: ignore[assignment]
        try:
            return super()._fire(schedule, now)
        finally:
            self.schedules = noted


class _Deaf:
    """Schedules that cannot be written."""

    def advance(self, before: Schedule, after: Schedule) -> bool:
        """Write nothing."""
        return False


class Planners(Teams):
    """Schedules and schedulers on the same database."""

    def __init__(self, redis: Redis, web: FlaskClient) -> None:
        super().__init__(redis, web)
        self.plans: dict[str, Plan] = {}
        self.client = _Numbering(Settings(), redis)

    def publish(self) -> None:
        """Make the types known, as a deploy does: a scheduler submits no other."""
        published = {"policy": POLICY.pack(), "schema": {"type": "object"}, "description": ""}
        self.store.publish_types(
            {name: published | {"queue": queue} for name, queue in zip(TYPES, QUEUES, strict=True)}
        )

    @rule(name=names, plan=plans)
    def register(self, name: str, plan: Plan) -> None:
        """Register a schedule, or what one that is there is to do from now on."""
        wanted = Schedule(
            name, plan.type, Recurrence(every=EVERY), queue=plan.queue, misfire=plan.misfire, overlap=plan.overlap
        )  # type: ignore[arg-type]
        told = self.client.schedules.put(wanted)
        assert (self.plans[name].change(plan) if name in self.plans else True) == told
        self.plans.setdefault(name, replace(plan))

    @rule(name=names, verb=st.sampled_from(["pause", "resume", "remove"]))
    def tend(self, name: str, verb: str) -> None:
        """Pause, resume or remove a schedule, which may not be there."""
        act, plan = getattr(self.client.schedules, verb), self.plans.get(name)
        try:
            told = act(name)
        except ScheduleNotFound:
            assert plan is None
            return
        assert plan
        self.met[verb, "due" if plan.missed is not None else "not due"] += 1
        if verb == "remove":
            del self.plans[name]
        else:
            assert getattr(plan, verb)() == told

    @precondition(lambda self: self.plans and len(self.tasks) <= MOST_TASKS)
    @rule(name=names, missed=st.integers(0, 2), dies=st.booleans())
    def let_runs_come(self, name: str, missed: int, dies: bool) -> None:
        """Let a run be due, after some for which nobody was there, and schedulers see to it, one after the other.

        The first may die between the submits and its note of them: then the next one makes them again.
        """
        plan = self.plans.get(name)
        if plan is None:
            return
        there, first = self.client.schedules.get(name), self.pass_a_moment() - missed * EVERY
        late = replace(there, due=first, recurrence=replace(there.recurrence, start=first))
        self.client.schedules.advance(there, late)
        plan.missed = missed
        new = len(self.tasks) + len(self.purged)
        if dies:
            assert 0 == self._submitted_by(_Forgetful(self.client), new)
            new += FAR  # no id of those that come next: what was submitted is found by its key alone
        assert (1 if plan.is_due else 0) == self._submitted_by(Scheduler(self.client), new)
        assert 0 == self._submitted_by(Scheduler(self.client), new)
        if plan.is_due:
            self._follow_runs(plan, missed, dies)

    def _submitted_by(self, scheduler: Scheduler, new: int) -> int:
        self.client.ids = map("t{}".format, itertools.count(new))
        return scheduler.submit_due()

    def _follow_runs(self, plan: Plan, missed: int, dies: bool) -> None:
        unfinished = {task.id for task in self.tasks.values() if task.state not in FINAL}
        left_out = plan.left_out
        for task_id in plan.run(unfinished, map("t{}".format, itertools.count(len(self.tasks) + len(self.purged)))):
            self.tasks[task_id] = Model(task_id, plan.type, plan.queue, "of a schedule")
            self.tasks[task_id].submit(False, set(), set())
            self.met["run", "of one that died" if dies else "of one that lives"] += 1
        self.met["left out", plan.overlap] += plan.left_out - left_out
        self.met["missed", plan.misfire] += missed

    @invariant()
    def schedules_agree(self) -> None:
        """Each schedule is as the model says, and none is due but what was paused before."""
        found, now = self.client.schedules.all()
        assert self.plans.keys() == found.keys()
        for name, plan in self.plans.items():
            there = found[name]
            assert isinstance(there, Schedule)
            told = (there.type, there.queue, there.misfire, there.overlap)
            assert (plan.type, plan.queue, plan.misfire, plan.overlap) == told
            told = (there.paused, there.last_task, there.skipped, there.due <= now)
            assert (plan.is_paused, plan.last_task, plan.left_out, plan.missed is not None) == told
