-- A walk over all keys that the watchdogs make together, a step at a time. Its trace says where it goes on and when, so
-- it costs the same whatever number of them there are, and no more than a share of Redis' time.

local SEARCHED = 250 -- keys of which a page is made
local LATE = 2 -- sweeps that a walk makes up for, at most
local FORGOTTEN = 4 -- leases after which a walk that nobody went on with begins anew

-- Returns where a walk goes on, or nothing when its next step is not due yet.
-- `pace`: sweep (ms), round (ms in which it goes round, unless that takes more than its share), share (of Redis' time:
-- one part in so many), lease (ms)
local function next_step(trace, now, pace)
  local stored = redis.call("HMGET", trace, "at", "cursor", "passed", "member", "round", "began_at")
  local at = whole(stored[1] or "") or now
  if at > now and at - now < FORGOTTEN * pace.lease then return end
  return {
    trace = trace, pace = pace, now = now, started = microseconds(),
    due_at = math.max(math.min(at, now), now - LATE * pace.sweep),
    cursor = whole(stored[2] or "") and stored[2] or "0",
    passed = whole(stored[3] or "") or 0, member = whole(stored[4] or "") and stored[4] or "0",
    round = whole(stored[5] or "") or 0, began_at = whole(stored[6] or "") or now,
  }
end

-- Returns the keys of the page at which a walk is, `...` saying which of them. It is noted as done with, so that a page
-- at which a script fails holds nobody up.
local function turn_page(step, ...)
  local page, life = redis.call("SCAN", step.cursor, "COUNT", SEARCHED, ...), FORGOTTEN * step.pace.lease
  step.keys = redis.call("DBSIZE")
  step.pause = math.min(step.pace.sweep, step.pace.round * SEARCHED / math.max(1, step.keys))
  step.is_last, step.left = page[1] == "0", {}
  redis.call("PEXPIRE", step.trace, life) -- needs no memory, and lets the writes after it pass at a full Redis
  redis.call("HSET", step.trace, "at", step.now + step.pace.sweep, "cursor", page[1], "passed", 0, "member", 0)
  redis.call("PEXPIRE", step.trace, life)
  return page[2]
end

-- Lets the next step go on with the same page behind so many of its keys, and at this cursor of the next one's members.
local function stay(step, passed, member)
  step.pause, step.is_last = 0, false
  step.left = {"cursor", step.cursor, "passed", passed, "member", member or 0}
end

-- Returns 1 when the next step is due at once, else 0.
local function end_step(step)
  local spent = (microseconds() - step.started) / 1000
  local at = math.ceil(step.due_at + math.max(step.pause, step.pace.share * spent))
  if step.is_last then
    local took = step.now - step.began_at
    redis.call("HSET", step.trace, "at", at, "round", step.round + 1, "began_at", step.now, "took", took)
  else
    redis.call("HSET", step.trace, "at", at, "round", step.round, "began_at", step.began_at, unpack(step.left))
  end
  return at <= step.now and 1 or 0
end
