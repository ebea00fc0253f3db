"""Those who keep a database in order: what is due goes on, what is lost is put back. The machine's sixth part."""

from pathlib import Path
from tempfile import mkdtemp

from faults.machine_people import numbers
from faults.machine_plans import Planners
from faults.machine_workers import workers
from faults.model import FINAL, RUNNING, WAITING_FOR_TIME, Model, settle
from flask.testing import FlaskClient
from ghostless.jobs.archive_file import find_archived
from ghostless.jobs.archivist import Archivist
from ghostless.jobs.doctor import Doctor
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.jobs.upkeep import Upkeep
from ghostless.jobs.watchdog import Watchdog
from ghostless.statemachine import State
from helpers import eventually, expect
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from redis import Redis

watchdogs = st.sampled_from(["watchdog:a", "watchdog:b"])


class Keepers(Planners):
    """Watchdogs, an archivist and a doctor on the same database."""

    def __init__(self, redis: Redis, folder: Path, web: FlaskClient) -> None:
        super().__init__(redis, web)
        self.demands_archive = False
        self.archived = 0
        self._folder = Path(mkdtemp(dir=folder))
        self._archivist = Archivist(self.store, self._folder)
        self._patrolling = Watchdog(Store(redis, Settings(sweep=0.01)))

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

    # What is seldom done: one rule, that it does not crowd out the others

    @rule(
        what=st.sampled_from(["hold", "let_go", "unpark", "requeue", "recheck", "purge", "archive", "demand"]),
        number=numbers,
        actor=watchdogs,
    )
    def keep_up(self, what: str, number: int, actor: str) -> None:
        """Do this to a task, if it is one to which it can be done, and to its queue."""
        task = self.tasks.get(f"t{number}")
        if task:
            getattr(self, f"_{what}")(task, actor)

    def _hold(self, task: Model, actor: str) -> None:
        self.door(actor == "watchdog:b").pause_queue(task.queue)
        self.paused.add(task.queue)

    def _let_go(self, task: Model, actor: str) -> None:
        self.door(actor == "watchdog:b").resume_queue(task.queue)
        self.paused.discard(task.queue)

    def _unpark(self, task: Model, _actor: str) -> None:
        self.store.unpark([task.type])

    def _requeue(self, task: Model, actor: str) -> None:
        """Lose the ticket of a task, if it has one, and let a watchdog find that out."""
        if self.redis.lrem(self.keys.rq_queue(task.queue), 1, task.id):
            self.redis.delete(self.keys.rq_job(task.id))
            self.redis.hset(self.keys.task(task.id), "unticketed_at", 1)
            assert 1 == self.store.requeue(actor, task.queue).moved
            task.requeue()

    def _recheck(self, _task: Model, actor: str) -> None:
        """Look again at those that wait for others, who were told, and at what is around all: that is right."""
        assert (0, 0) == (self.store.settle().moved, self.store.recheck(actor).moved)
        self.redis.delete(self.keys.patrol, self.keys.prune)
        upkeep = Upkeep(self.store)
        assert (0, 0) == (upkeep.patrol(actor).moved, upkeep.prune(actor).moved)

    def _purge(self, task: Model, _actor: str) -> None:
        """Let the retention of a task be over; where an archive is demanded, it stays all the same."""
        if task.state not in FINAL:
            return
        over_at = self.redis.zscore(self.keys.retention, task.id)
        self.redis.zadd(self.keys.retention, {task.id: 1})
        assert (0 if self.demands_archive else 1) == self.store.purge().moved
        if self.demands_archive:
            self.redis.zadd(self.keys.retention, {task.id: over_at})
            self.met["kept for the archive",] += 1
        else:
            self._forget(task, "purged")

    def _archive(self, task: Model, _actor: str) -> None:
        """Let the retention of a task be over where an archivist is: it goes, and its history is in the file."""
        if task.state not in FINAL:
            return
        self.redis.zadd(self.keys.retention, {task.id: 1})
        assert 1 == self._archivist.archive().moved
        self.archived += 1
        assert str(self.archived) == self.redis.hget(self.keys.ledger, "archived")
        self.demands_archive = True
        found = find_archived(self._folder, task.id)
        entries = [(entry["event"], entry["from"] or "", entry["to"], entry["attempt"]) for entry in found["history"]]
        assert (task.state, task.entries) == (found["task"]["state"], entries)
        state, _, file = str(self.redis.get(self.keys.tombstone(task.id))).split()
        assert (task.state, True) == (state, (self._folder / file).exists())
        self._forget(task, "archived")

    def _demand(self, _task: Model, _actor: str) -> None:
        """Let nothing be purged without an archive, or again as before."""
        self.demands_archive = not self.demands_archive
        self.store.demand_archive(self.demands_archive)

    def _forget(self, task: Model, how: str) -> None:
        self.forget(task)
        self.met[how,] += 1
        self.purged[task.id] = task.state

    @precondition(lambda self: self.tasks)
    @rule(number=numbers, which=st.integers(0, 8), is_by_doctor=st.booleans())
    def lose_an_entry(self, number: int, which: int, is_by_doctor: bool) -> None:
        """Lose one entry of one index of a task: a doctor, or a watchdog by its rounds, puts it back and says so."""
        task = self.tasks.get(f"t{number}")
        if task is None:
            return
        indices = self._indices(task)
        index = indices[which % len(indices)]
        self.redis.zrem(index, task.id)
        if is_by_doctor:
            problems = list(Doctor(self.store, "doctor:a").audit())
            assert ["repaired"] == [problem.outcome for problem in problems], problems
        else:
            eventually(lambda: expect(self._patrolling.audit().moved), 1)
        task.mend()
        if index == self.keys.deadlines and (task.is_lost or task.is_overdue):
            self.redis.zadd(index, {task.id: 1})  # it was put back as one that runs well
        family = index.removeprefix(self.keys.prefix).partition(":")[0]
        self.met["repaired", "doctor" if is_by_doctor else "watchdog"] += 1
        self.met["lost", family] += 1

    def _indices(self, task: Model) -> list[str]:
        """Return the indices in which a task stands."""
        keys, place = self.keys, f"{task.queue}:{task.type}"
        possible = [keys.state(State(task.state)), keys.due, keys.deadlines, keys.retention]
        possible += [keys.pending(task.queue), keys.parked(place), *map(keys.dependents, sorted(task.unmet))]
        return [index for index in possible if self.redis.zscore(index, task.id) is not None]
