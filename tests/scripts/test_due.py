"""Many tasks whose time has come at once, and several watchdogs that release them."""

import threading
from collections import Counter

from ghostless.jobs.messages import Swept
from ghostless.jobs.settings import Settings
from ghostless.jobs.store import Store
from ghostless.lua import BATCH
from ghostless.statemachine import State
from redis import Redis
from redis_server import RedisServer
from scripts.seeding import QUEUE, scene, submission

MANY = 20_000


def release_all(store: Store, name: str, counted: list[Swept]) -> None:
    """Release until nothing is due."""
    while (swept := store.release(name)).looked_at:
        counted.append(swept)


def test_twenty_thousand_due_tasks_and_three_watchdogs(redis: Redis, redis_server: RedisServer) -> None:
    """Each is released once, whoever does it, in calls that look at a batch (B46)."""
    stage = scene(redis)
    ids = [f"t{number:05}" for number in range(MANY)]
    for start in range(0, MANY, 1_000):
        stage.store.submit_many([submission(task_id, delay=1_000_000) for task_id in ids[start : start + 1_000]])
    redis.zunionstore(stage.keys.due, {stage.keys.due: 0})  # the time of all has come
    counted: list[Swept] = []
    stores = [Store(Redis.from_url(redis_server.url, decode_responses=True, protocol=2), Settings()) for _ in "abc"]
    threads = [
        threading.Thread(target=release_all, args=(store, f"watchdog:{number}", counted))
        for number, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (MANY, BATCH) == (sum(swept.moved for swept in counted), max(swept.looked_at for swept in counted))
    assert dict.fromkeys(ids, 1) == Counter(redis.lrange(stage.keys.rq_queue(QUEUE), 0, -1))
    released = Counter(entry["task"] for _, entry in redis.xrange(stage.keys.history) if entry["event"] == "RELEASE")
    assert dict.fromkeys(ids, 1) == released
    assert MANY == redis.zcard(stage.keys.state(State.PENDING))
    assert 0 == redis.exists(stage.keys.due)
