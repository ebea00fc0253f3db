"""rq's own keys, since the delivery ticket of a task stands in them: one function each, with its Redis type."""

from rq.command import PUBSUB_CHANNEL_TEMPLATE
from rq.executions import WORKER_EXECUTIONS_KEY_TEMPLATE, ExecutionRegistry
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job
from rq.queue import Queue
from rq.registry import StartedJobRegistry
from rq.suspension import WORKERS_SUSPENDED
from rq.worker import BaseWorker
from rq.worker_registration import REDIS_WORKER_KEYS, WORKERS_BY_QUEUE_KEY

WORKER_RECORD = "ghostless"
"""The field of a worker's hash in which it tells of itself with each beat, as JSON."""

QUEUES = Queue.redis_queues_keys
"""set: the names of the lists of all queues."""

INTERMEDIATE_SUFFIX = IntermediateQueue.get_intermediate_queue_key("")
"""What follows the name of a queue's list in that of its intermediate list."""


class RqKeys:
    """Names that rq gave, whatever our prefix."""

    __slots__ = ()

    @staticmethod
    def rq_queue(queue: str) -> str:
        """list: the ids of the tickets (and plain rq jobs) of one queue."""
        return f"{Queue.redis_queue_namespace_prefix}{queue}"

    @staticmethod
    def rq_intermediate(queue: str) -> str:
        """list: plain rq jobs of one queue on their way to a horse."""
        return IntermediateQueue.get_intermediate_queue_key(RqKeys.rq_queue(queue))

    @staticmethod
    def rq_job(task_id: str) -> str:
        """hash: the delivery ticket of a PENDING task."""
        return f"{Job.redis_job_namespace_prefix}{task_id}"

    @staticmethod
    def rq_worker(worker_id: str) -> str:
        """hash: a worker as rq registers it, with our record of it in the field `WORKER_RECORD`."""
        return f"{BaseWorker.redis_worker_namespace_prefix}{worker_id}"

    @staticmethod
    def rq_executions(task_id: str) -> str:
        """zset: the executions of a ticket by stock rq workers."""
        return ExecutionRegistry.key_template.format(task_id)

    @staticmethod
    def rq_commands(worker_id: str) -> str:
        """pub/sub channel: commands to one worker."""
        return PUBSUB_CHANNEL_TEMPLATE % worker_id

    @staticmethod
    def rq_worker_executions(worker_id: str) -> str:
        """set: the executions of plain jobs that a worker has begun, "job:execution"."""
        return WORKER_EXECUTIONS_KEY_TEMPLATE.format(worker_id)

    @staticmethod
    def rq_started(queue: str) -> str:
        """zset: the executions of a queue's plain jobs by the time at which rq holds them for abandoned."""
        return StartedJobRegistry.key_template.format(queue)

    @staticmethod
    def rq_workers_of(queue: str) -> str:
        """set: the names of the hashes of the workers that serve a queue."""
        return WORKERS_BY_QUEUE_KEY % queue

    @property
    def rq_workers(self) -> str:
        """set: the names of the hashes of all workers."""
        return REDIS_WORKER_KEYS

    @property
    def rq_suspended(self) -> str:
        """string: there while `rq suspend` holds."""
        return WORKERS_SUSPENDED
