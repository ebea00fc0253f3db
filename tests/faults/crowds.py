"""Many stored tasks in little time: one is submitted, and copied in Redis with all that belongs to it."""

from ghostless.statemachine import Policy, State
from scripts.seeding import PLACE, QUEUE, Scene, submission

AT_ONCE = 1_000


def nth(number: int) -> str:
    """Return the id of a task; in the order of ids they wait, since all entered their state at the same moment."""
    return f"t{number:07}"


COPY = """
local function copy(kind, from, to)
  local all = redis.call("HGETALL", kind .. from)
  redis.call("HSET", kind .. to, unpack(all))
end
local task, params, job, history = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local entry = redis.call("XRANGE", history, "-", "+", "COUNT", 1)[1][2]
local entered_at = redis.call("HGET", task .. ARGV[3], "entered_at")
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local id = string.format("t%07d", number)
  copy(task, ARGV[3], id)
  copy(job, ARGV[3], id)
  redis.call("COPY", params .. ARGV[3], params .. id)
  entry[2] = id
  redis.call("HSET", task .. id, "h1", redis.call("XADD", history, "*", unpack(entry)))
  redis.call("RPUSH", KEYS[5], id)
  redis.call("ZADD", KEYS[6], entered_at, id)
  redis.call("ZADD", KEYS[7], entered_at, id)
  redis.call("ZADD", KEYS[8], redis.call("ZSCORE", KEYS[8], ARGV[3]), id)
  redis.call("HINCRBY", KEYS[9], "submitted", 1)
end
"""
"""Makes copies of the first task, since so many submits would take long."""


def fill(stage: Scene, number: int) -> None:
    """Let so many tasks wait in one queue. When one ends it is at once to be purged."""
    stage.store.submit(submission(nth(0), Policy(retention=1), owner=""))
    keys = stage.keys
    of_each = (keys.task(""), keys.params(""), keys.rq_job(""))
    indices = (keys.state(State.PENDING), keys.pending(QUEUE), keys.listed(PLACE))
    of_all = (keys.history, keys.rq_queue(QUEUE), *indices, keys.ledger)
    for first in range(1, number, AT_ONCE):
        stage.redis.eval(COPY, 9, *of_each, *of_all, first, min(first + AT_ONCE, number) - 1, nth(0))
