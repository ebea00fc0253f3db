"""Several attempts that are ended or renewed in one call, and plain jobs beside tasks: the machine's fourth part."""

import itertools
from collections.abc import Sequence
from typing import Any

from faults.machine_people import QUEUES, queues
from faults.machine_workers import SERVED, Workers, endings, workers
from flask.testing import FlaskClient
from ghostless.jobs.messages import Claim, Ending, Finished, Held, PlainJob
from hypothesis import strategies as st
from hypothesis.stateful import invariant, multiple, precondition, rule
from redis import Redis


class Teams(Workers):
    """Batches and plain jobs on the same database."""

    def __init__(self, redis: Redis, web: FlaskClient) -> None:
        super().__init__(redis, web)
        self._names = map("j{}".format, itertools.count())

    # Several attempts of one worker

    @rule(target=Workers.attempts, several=st.lists(st.tuples(Workers.attempts, endings), min_size=2, max_size=4),
          worker=workers, claims=st.booleans())  # fmt: skip
    def finish_together(self, several: Sequence[tuple[Held, Any]], worker: str, claims: bool) -> Any:
        """End several attempts in one call, as a worker does with a batch that it hands back; or claim with it."""
        claim = Claim(worker, QUEUES, next(self.tokens), SERVED[worker]) if claims else None
        ends = [Finished(held, Ending(*ending, text="1"), 0.5) for held, ending in several]
        answers, reply = self.store.finish_each(ends, "worker", claim)
        for (held, ending), told in zip(several, answers, strict=True):
            self._expect_end(held, ending, True, told)
        self.met["ended together", str(len({told.word for told in answers}) > 1)] += 1
        if claim is None:
            assert reply is None
            return multiple()
        self.claims[worker] = claim
        return self._claimed(claim, reply)

    @rule(several=st.lists(Workers.attempts, min_size=1, max_size=3, unique=True))
    def beat_together(self, several: Sequence[Held]) -> None:
        """Renew several leases over HTTP in one call: each is answered as if it came alone."""
        for held, told in zip(several, self.http.heartbeats(several), strict=True):
            task = self.tasks.get(held.task_id)
            standing = task.holds(held.attempt, held.token) if task else "missing"
            if task and standing == "moved":
                action = {"PROCESSING": "continue", "CANCELLING": "cancel", "PAUSING": "pause"}[task.state]
                assert ("ok", task.state, action) == told
                task.is_lost = False
            else:
                assert ("stale" if task else "missing", "stop") == (told[0], told[2])

    # Plain jobs of rq

    @rule(queue=queues)
    def enqueue_plain(self, queue: str) -> None:
        """Put a job that is no task into a queue, as rq does."""
        name = next(self._names)
        self.redis.hset(self.keys.rq_job(name), mapping={"origin": queue, "status": "queued", "data": "a call"})
        self.redis.rpush(self.keys.rq_queue(queue), name)
        self.plain[queue].append(name)

    def _take_plain(self, queue: str, claim: Claim, reply: PlainJob) -> None:
        assert not claim.tasks_only
        assert reply == PlainJob(queue, self.plain[queue].pop(0))
        self.begun.append(reply)
        self.claims.pop(claim.worker_id, None)

    @precondition(lambda self: self.begun)
    @rule(is_put_back=st.booleans(), data=st.data())
    def end_plain(self, is_put_back: bool, data: st.DataObject) -> None:
        """Put a plain job back that was not begun, which may be done twice; or be done with it."""
        self.be_done_with(data.draw(st.sampled_from(self.begun)), is_put_back)

    def be_done_with(self, job: PlainJob, is_put_back: bool) -> None:
        """Put a plain job back to the head of its queue, or run it."""
        self.begun.remove(job)
        if is_put_back:
            self.store.put_back(job)
            self.plain[job.queue].insert(0, job.job_id)
            self.met["put back",] += 1
        else:
            self.redis.lrem(f"{self.keys.rq_queue(job.queue)}:intermediate", 1, job.job_id)
            self.redis.delete(self.keys.rq_job(job.job_id))
        self.store.put_back(job)  # as when the reply was lost: there is nothing to put back any more

    @invariant()
    def plain_jobs_agree(self) -> None:
        """Each plain job stands in its queue, in its order, or with the worker that took it."""
        with self.redis.pipeline(transaction=False) as pipeline:
            for queue in self.plain:
                pipeline.lrange(self.keys.rq_queue(queue), 0, -1)
                pipeline.lrange(f"{self.keys.rq_queue(queue)}:intermediate", 0, -1)
            found = iter(pipeline.execute())
        for queue, names in self.plain.items():
            assert names == [name for name in next(found) if name.startswith("j")]
            assert sorted(job.job_id for job in self.begun if job.queue == queue) == sorted(next(found))
