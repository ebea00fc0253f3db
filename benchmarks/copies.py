"""Many stored tasks in little time: a few are submitted and run, and copied in Redis with all that belongs to them."""

import json
from collections.abc import Sequence
from typing import Any

from ..jobs.keys import pair
from ..jobs.messages import Claim, Claimed, ClaimReply, Ending, Held, Submission
from ..jobs.store import Store
from ..lua.loader import VALUES
from ..statemachine import STORED, Event, Policy, Reason

AN_HOUR = 3_600_000
LATER = 100 * AN_HOUR
"""When what waits for its time is due."""
POLICY = Policy(retention=1_000 * AN_HOUR)
TYPES = ("bench.noop", "bench.other")
OWNER, QUEUE, ENDED = "often", "bench", "ended"
"""Who owns one task in ten; where those wait that wait for a worker; of which queue those are that ended."""

TOGETHER = 1_000
"""Tasks that one call copies."""

COPY = """
local names, templates = cjson.decode(ARGV[1]), cjson.decode(ARGV[2])
local first, last, oldest, step = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

local function later(at, by) return string.format("%.0f", at + by) end

for _, template in ipairs(templates) do
  template.record, template.history = redis.call("HGETALL", names.task .. template.id), {}
  for index = 1, #template.record, 2 do
    local id = string.find(template.record[index], "^h%d+$") and template.record[index + 1]
    if id then template.history[index + 1] = redis.call("XRANGE", names.history, id, id)[1][2] end
    if template.record[index] == "entered_at" then template.entered_at = template.record[index + 1] end
  end
end

local function copy_record(template, id, by)
  local record = {}
  for index, value in ipairs(template.record) do record[index] = value end
  for index = 2, #record, 2 do
    local entry, field = template.history[index], record[index - 1]
    if entry then
      entry[2] = id
      record[index] = redis.call("XADD", names.history, "*", unpack(entry))
    elseif field == "entered_at" or field == "due_at" then
      record[index] = later(record[index], by)
    end
  end
  redis.call("HSET", names.task .. id, unpack(record))
end

for number = first, last do
  local template, id = templates[number % #templates + 1], "c" .. number
  local by = oldest + math.floor(number * step) - template.entered_at
  copy_record(template, id, by)
  for _, name in ipairs(template.beside) do redis.call("COPY", name .. template.id, name .. id) end
  for name, score in pairs(template.indices) do redis.call("ZADD", name, later(score, by), id) end
  if template.list then redis.call("RPUSH", template.list, id) end
end
redis.call("HINCRBY", names.ledger, "submitted", last - first + 1)
"""
"""Copies tasks in turn, each under a name of its own and entered into its state `step` ms after the one before."""


def submission(task_id: str, owner: str = "", kind: str = TYPES[0], queue: str = QUEUE, delay: int = 0) -> Submission:
    """Return a small task."""
    return Submission(task_id, kind, queue, POLICY, '{"x":1}', "f", owner=owner, delay=delay)


class Hand:
    """A worker's calls without a worker: one task at a time."""

    def __init__(self, store: Store, queue: str = QUEUE) -> None:
        self._store, self._queue = store, queue
        self._held: Held | None = None

    def claim(self) -> None:
        """Start the next task."""
        self._hold(self._store.claim(self._wish()))

    def finish_and_claim(self) -> None:
        """End the task and start the next, in one call."""
        self._hold(self._finish(self._wish()))

    def finish(self) -> None:
        """End the task."""
        self._finish(None)

    def _finish(self, wish: Claim | None) -> ClaimReply | None:
        assert self._held
        ending = Ending(Event.COMPLETE, Reason.POLICY, text='{"ok":true}')
        return self._store.finish(self._held, ending, "worker:bench", wish)[1]

    def _hold(self, claimed: ClaimReply | None) -> None:
        assert isinstance(claimed, Claimed), claimed
        self._held = claimed.held

    def _wish(self) -> Claim:
        return Claim.new("bench", [self._queue], TYPES)


class Crowd:
    """Fills a database: of what does not wait for a worker ten in eleven succeeded, the others wait for their time."""

    def __init__(self, store: Store) -> None:
        self.store, self.redis, self.keys = store, store.redis, store.keys
        self.size = 0
        # Each owner has tasks of both types.
        kinds = [(owner, kind) for owner in (OWNER, *[""] * 9) for kind in TYPES]
        self._waiting = [self._submitted(f"w{at}", owner, kind) for at, (owner, kind) in enumerate(kinds)]
        over = [self._ended(f"e{at}", owner, kind) for at, (owner, kind) in enumerate(kinds)]
        self._others = [*over, *(self._submitted(f"s{at}", "", TYPES[0], LATER) for at in range(2))]

    def grow(self, number: int, queued: int) -> None:
        """Add so many tasks, `queued` of which wait in the queue; the times of both kinds cover the last hour."""
        self._copy(self._waiting, queued)
        self._copy(self._others, number - queued)

    def _copy(self, tasks: Sequence[str], number: int) -> None:
        keys, templates = self.keys, json.dumps([self._template(task_id) for task_id in tasks])
        names = json.dumps({"task": keys.task(""), "history": keys.history, "ledger": keys.ledger})
        seconds, _ = self.redis.time()
        step = AN_HOUR / max(1, number)
        oldest = 1_000 * seconds - AN_HOUR - self.size * step
        script, end = self.redis.register_script(COPY), self.size + number
        for first in range(self.size, end, TOGETHER):
            last = min(first + TOGETHER, end) - 1
            script((), (names, templates, first, last, oldest, step))
        self.size = end

    def _template(self, task_id: str) -> dict[str, Any]:
        """Return what belongs to a task: values beside its record, indices with its scores, a list with its ticket."""
        keys, redis = self.keys, self.redis
        beside = [*(getattr(keys, kind)("") for kind in VALUES), keys.rq_job("")]
        listed = [keys.listed(pair(queue, kind)) for queue in (QUEUE, ENDED) for kind in TYPES]
        of_some = (keys.due, keys.retention, keys.pending(QUEUE), keys.owned(OWNER))
        everywhere = [*of_some, *listed, *map(keys.state, STORED)]
        scores = {name: redis.zscore(name, task_id) for name in everywhere}
        told: dict[str, Any] = {
            "id": task_id,
            "beside": [name for name in beside if redis.exists(name + task_id)],
            "indices": {name: score for name, score in scores.items() if score is not None},
        }
        return told | ({"list": keys.rq_queue(QUEUE)} if scores[keys.pending(QUEUE)] else {})

    def _submitted(self, task_id: str, owner: str, kind: str, delay: int = 0) -> str:
        self.store.submit(submission(task_id, owner, kind, delay=delay))
        return task_id

    def _ended(self, task_id: str, owner: str, kind: str) -> str:
        self.store.submit(submission(task_id, owner, kind, ENDED))
        hand = Hand(self.store, ENDED)
        hand.claim()
        hand.finish()
        return task_id
