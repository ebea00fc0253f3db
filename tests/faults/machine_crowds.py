"""Crowds that wait for one task, more than one script tells of its end: the machine's seventh part."""

from random import Random

from faults.machine_keepers import Keepers
from faults.machine_people import MOST
from faults.machine_workers import ENDINGS
from faults.model import FINAL, Model, settle
from ghostless.jobs.client import Submitted
from ghostless.jobs.messages import Claim, Ending, Held
from ghostless.jobs.submission import Request
from ghostless.lua import BATCH
from ghostless.statemachine import Event, Reason, State
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

GOOD, BAD = ENDINGS[0], [(Event.FAIL, Reason.EXCEPTION), (Event.STOPPED, Reason.USER)]
WAYS = ("fan", "fan", "chain", "retried")


class Crowds(Keepers):
    """A crowd that comes, waits, and leaves again."""

    @precondition(lambda self: len(self.tasks) <= MOST)
    @rule(seed=st.integers(0, 2**32 - 1))
    def end_before_a_crowd(self, seed: int) -> None:
        """End a task for which many wait: all of them, or one for the next along a chain.

        Its end tells so many as one script may, the watchdog the others; when the task has another life before that,
        those who were not told wait for its next end.
        """
        chance = Random(seed)
        way, size = chance.choice(WAYS), BATCH + chance.randint(2, 8)
        names = [f"c{number}" for number in range(size + 1)]
        crowd = self._come(names, way == "chain")
        ending = BAD[0] if way == "retried" else chance.choice([GOOD, *BAD] if way == "fan" else BAD)
        self._end_first(crowd[0], ending)
        self._tell_a_batch(crowd[1:])
        if way == "retried":
            self._live_again(crowd[0])
        else:
            assert size - BATCH == self.store.settle().moved
        settle(self.tasks)
        self.agrees_with_the_model()
        self.is_sound()
        self.met["crowd", way] += 1
        self._leave(crowd)

    def _come(self, names: list[str], is_chain: bool) -> list[Model]:
        """Submit the one that ends first, and all others, each of which waits for it or for the one before."""
        awaited = [[], *([names[number - 1]] if is_chain else [names[0]] for number in range(1, len(names)))]
        requests = [
            Request("demo.add", {}, name, "crowd", depends_on=others)
            for name, others in zip(names, awaited, strict=True)
        ]
        crowd = [Model(name, "demo.add", "crowd") for name in names]
        self.tasks |= {task.id: task for task in crowd}
        for task, others, told in zip(crowd, awaited, self.client.submit_many(requests), strict=True):
            task.submit(False, set(others), set())
            assert told == Submitted(task.id, State(task.state), created=True)
        return crowd

    def _end_first(self, first: Model, ending: tuple[Event, Reason]) -> None:
        token = next(self.tokens)
        self.store.claim(Claim("w4", ("crowd",), token, ("demo.add",)))
        first.start("w4", token)
        if ending[0] is Event.STOPPED:
            assert first.cancel() == self.store.cancel(first.id, "client:a").word
        first.end(ending[0], "failures", retryable=False)
        held = Held(first.id, first.attempt, token)
        told, _ = self.store.finish(held, Ending(*ending, text="1", retryable=False), "worker", fraction=0.5)
        assert ("moved", first.state) == (told.word, told.state)

    def _tell_a_batch(self, crowd: list[Model]) -> None:
        """As many as one script tells have moved, whichever they are; nothing is wrong meanwhile."""
        states = [str(self.redis.hget(self.keys.task(task.id), "state")) for task in crowd]
        told = [task for task, state in zip(crowd, states, strict=True) if state != "BLOCKED"]
        assert BATCH == len(told)
        assert all(task.heed(self.tasks) for task in told)
        self.agrees_with_the_model()
        self.is_sound()

    def _live_again(self, first: Model) -> None:
        """Before the others were told, the task has another life, and ends well."""
        assert first.retry() == self.store.retry(first.id, "client:a").word
        assert 0 == self.store.settle().moved
        self._release("watchdog:a")
        self._end_first(first, GOOD)

    def _leave(self, crowd: list[Model]) -> None:
        """Let all be over, and their retention too."""
        for task in crowd:
            if task.state not in FINAL:
                assert task.cancel() == self.store.cancel(task.id, "client:a").word
        self.store.demand_archive(False)
        self.redis.zadd(self.keys.retention, {task.id: 1 for task in crowd})
        left = len(crowd)
        while left:
            moved = self.store.purge().moved
            assert 0 < moved <= BATCH
            left -= moved
        self.store.demand_archive(self.demands_archive)
        for task in crowd:
            self.redis.delete(self.keys.tombstone(task.id))  # as after a week: the next crowd has the same names
            self.forget(task)
