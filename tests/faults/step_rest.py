"""What is done to Redis only now and then by people, workers, watchdogs and web servers, to be walked step by step."""

from faults import step_scenes as before
from faults.http_operations import api
from faults.steps import Operation
from faults.world import OTHER_TYPE, QUEUE, TYPE, World
from ghostless.jobs.bulk import BulkFilter, BulkRequest
from ghostless.jobs.messages import PlainJob
from ghostless.statemachine import State
from helpers import expect

SUCCESS, CANCELLED, PAUSED, FAILED = (State.SUCCESS,), (State.CANCELLED,), (State.PAUSED,), (State.FAILED,)

PLAIN = "plain-job"
SESSION, A_MINUTE = "session", 60

# What there is before


def a_bulk_action(world: World) -> None:
    """Accept a bulk action that nobody works off."""
    before.two_waiting_tasks(world)
    begin(world, "cancel")


def two_paused_tasks(world: World) -> None:
    """Pause two waiting tasks."""
    before.two_waiting_tasks(world)
    for task_id in ("t1", "t2"):
        world.client.pause(task_id)


def a_plain_job(world: World) -> None:
    """Put a job of rq that is no task into the queue."""
    redis, keys = world.client.store.redis, world.client.store.keys
    redis.hset(keys.rq_job(PLAIN), mapping={"origin": QUEUE, "status": "queued", "data": "a call"})
    redis.rpush(keys.rq_queue(QUEUE), PLAIN)


# What is done


def begin(world: World, action: str) -> str:
    """Accept a bulk action, once; return its id."""
    return world.client.bulk.begin(BulkRequest(action, BulkFilter(type=TYPE), idempotency_key=action)).bulk_id


def pause_all(world: World) -> None:
    """Pause what waits, by a bulk action."""
    _act_on_all(world, "pause")


def resume_all(world: World) -> None:
    """Resume what is paused, by a bulk action."""
    _act_on_all(world, "resume")


def retry_all(world: World) -> None:
    """Retry what failed, by a bulk action."""
    _act_on_all(world, "retry")


def _act_on_all(world: World, action: str) -> None:
    bulk_id = begin(world, action)
    while not world.client.bulk.is_over(bulk_id):
        world.client.bulk.work_off()


def stop_a_bulk_action(world: World) -> None:
    """End a bulk action before it did anything."""
    world.client.bulk.stop(begin(world, "cancel"))


def give_a_plain_job_back(world: World) -> None:
    """Take a job of rq, and give it back for a shutdown."""
    taken = world.client.store.claim(world.claim("bb22"))
    if isinstance(taken, PlainJob):
        world.client.store.put_back(taken)


def publish_by_http(world: World) -> None:
    """Publish a type as a worker over HTTP does."""
    with api(world) as web:
        answer = web.put(f"/api/types/{OTHER_TYPE}", json={"queue": QUEUE, "schema": {"type": "object"}})
    assert answer.status_code == 200, answer.text


def end_a_session(world: World) -> None:
    """End a browser's session, whose cookies were signed with the key that all web servers share."""
    world.client.tokens.signing_key()
    world.client.tokens.end_session(SESSION, A_MINUTE)


# What is then


def is_stopped(world: World) -> None:
    """Check that the bulk action has ended."""
    expect(world.client.bulk.is_over(begin(world, "cancel")))


def is_in_one_list(world: World) -> None:
    """Check that the job is in its queue, or where rq looks for those that were taken and not begun."""
    redis, keys = world.client.store.redis, world.client.store.keys
    places = [redis.lrange(name, 0, -1) for name in (keys.rq_queue(QUEUE), keys.rq_intermediate(QUEUE))]
    assert sum(places, []) == [PLAIN]


def is_known(world: World) -> None:
    """Check that the type is there."""
    expect(OTHER_TYPE in world.client.types())


def is_ended(world: World) -> None:
    """Check that the session is over, for a while."""
    expect(world.client.tokens.look("", SESSION).session_ended)


BOTH = ("t1", "t2")

REST = (
    Operation(stop_a_bulk_action, a_bulk_action, dict.fromkeys(BOTH, SUCCESS + CANCELLED)),
    Operation(pause_all, before.two_waiting_tasks, dict.fromkeys(BOTH, PAUSED), repeats=True, is_costly=True),
    Operation(resume_all, two_paused_tasks, dict.fromkeys(BOTH, SUCCESS), repeats=True, is_costly=True),
    Operation(retry_all, before.a_failed_task, {"t1": SUCCESS}, repeats=True, is_costly=True),
    Operation(give_a_plain_job_back, a_plain_job, {}, check=is_in_one_list),
    Operation(publish_by_http, before.nothing, {}, repeats=True, check=is_known, is_costly=True),
    Operation(end_a_session, before.nothing, {}, repeats=True, check=is_ended, is_costly=True),
)
