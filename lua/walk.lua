-- A walk over all keys that the watchdogs make together, a step at a time. Its trace says where it goes on and when, so
-- it costs the same whatever number of them there are, and no more than a share of Redis' time.

local SEARCHED = 250 -- keys of which a page is made
local LATE = 2 -- sweeps that a walk makes up for, at most
local FORGOTTEN = 4 -- leases after which a walk that nobody went on with begins anew

-- Returns where a walk goes on, or nothing when its next step is not due yet.
-- `pace`: sweep (ms), round (ms in which it goes round, unless that takes more than its share), share (of Redis' time:
-- one part in so many), lease (ms)
local function next_step(trace, now, pace)
  local stored = redis.call("HMGET", trace, "at", "cursor", "reached", "member", "round", "began_at")
  local at = whole(stored[1] or "") or now
  if at > now and at - now < FORGOTTEN * pace.lease then return end
  return {
    trace = trace, pace = pace, now = now, started = microseconds(),
    due_at = math.max(math.min(at, now), now - LATE * pace.sweep),
    cursor = whole(stored[2] or "") and stored[2] or "0",
    reached = stored[3], member = whole(stored[4] or "") and stored[4] or "0",
    round = whole(stored[5] or "") or 0, began_at = whole(stored[6] or "") or now,
  }
end

-- The place in a page of the key with which the last step wanted to go on, the first when that is gone. It is not known
-- by its number: keys come and go between two steps.
local function place_of(name, names)
  for position = 1, #names do
    if names[position] == name then return position end
  end
  return 1
end

-- Returns the keys of the page at which a walk is, `...` saying which of them, and the place at which it goes on. The
-- page is noted as done with, so that one at which a script fails holds nobody up.
local function turn_page(step, ...)
  local page, life = redis.call("SCAN", step.cursor, "COUNT", SEARCHED, ...), FORGOTTEN * step.pace.lease
  step.keys = redis.call("DBSIZE")
  step.pause = math.min(step.pace.sweep, step.pace.round * SEARCHED / math.max(1, step.keys))
  step.is_last, step.left = page[1] == "0", {}
  redis.call("PEXPIRE", step.trace, life) -- needs no memory, and lets the writes after it pass at a full Redis
  redis.call("HSET", step.trace, "at", step.now + step.pace.sweep, "cursor", page[1], "reached", "", "member", 0)
  redis.call("PEXPIRE", step.trace, life)
  local first = place_of(step.reached, page[2])
  if page[2][first] ~= step.reached then step.member = "0" end
  return page[2], first
end

-- Lets the next step go on in the same page with this key, and at this cursor of its members.
local function stay(step, name, member)
  step.pause, step.is_last = 0, false
  step.left = {"cursor", step.cursor, "reached", name, "member", member or 0}
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
