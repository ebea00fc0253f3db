-- Looks at running tasks whose time to be looked at has come, and takes away those whose worker is gone.
-- uses attempt, batch
--
-- ARGV[1] actor   ARGV[2] tasks looked at, at most
-- ARGV[3] lease, ms   ARGV[4] longest pause between two sweeps after which leases are judged, ms
-- ARGV[5] ms that a live worker gets beyond a deadline to end the attempt itself; this and the lease are for tasks
--         that carry no terms of their worker
-- ARGV[6] seed for the jitter
-- ARGV[7] what workers answered that were asked for their health, JSON object worker -> text; empty before any was
-- ARGV[8] beat, ms: the time between two looks at tasks that seem lost together
-- returns number looked at, number moved, workers to ask before they are judged (name, address, ...), then what was
--   wrong with the others
-- appends TIMEOUT, with RETRY or GIVE_UP; CANCEL of tasks that waited for these

local actor, limit = ARGV[1], tonumber(ARGV[2])
local lease, gap, patience, seed = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local findings, beat = ARGV[7] ~= "" and cjson.decode(ARGV[7]), tonumber(ARGV[8])
math.randomseed(seed)

local SAMPLE = 100 -- running tasks by which it is told whether many fell silent together: all, or so many at random
local FEW = 3 -- tasks that may fall silent together, whatever their share

-- Nobody swept for a while: Redis was down or stalled, and workers may not have reached it either. Then no lease
-- is judged until one full lease has passed.
local function judge_from(now)
  local seen = redis.call("HMGET", key.watchdog, "swept_at", "judge_from")
  local swept_at, judge = tonumber(seen[1]), tonumber(seen[2])
  if not swept_at or not judge or now - swept_at > gap then judge = now + lease end
  -- Needs no memory, and lets the writes after it pass at a full Redis.
  redis.call("PEXPIRE", key.watchdog, 4 * lease)
  redis.call("HSET", key.watchdog, "swept_at", now, "late_from", now + gap, "judge_from", judge, "actor", actor)
  redis.call("PEXPIRE", key.watchdog, 4 * lease)
  return judge
end

-- The time by which a live worker must have ended the attempt itself; an extended attempt has a later `timeout_at`.
local function overdue_from(task)
  local deadline = task.entered_at
  if task.state == State.PROCESSING then deadline = task.timeout_at or task.entered_at + term(task, "timeout") end
  return deadline + (task.patience or patience)
end

local to_ask = {}

-- The answer is for the history only: once anybody was asked, tasks are judged with it or without.
local function must_ask_first(task)
  if findings or not task.worker_id then return false end
  local text = redis.pcall("HGET", key.rq_worker .. task.worker_id, key.worker_record)
  local is_json, record = pcall(cjson.decode, type(text) == "string" and text or "")
  local address = is_json and type(record) == "table" and record.health
  if type(address) ~= "string" then return false end
  to_ask[#to_ask + 1] = task.worker_id
  to_ask[#to_ask + 1] = address
  return true
end

-- After a gap a worker has one lease of its own to come back, when that is longer than the watchdog's.
local function judged_from(task, judge)
  return judge + math.max(0, (task.lease or lease) - lease)
end

-- Whether more than half of what runs has fallen silent. A worker that is well has its lease renewed before half of
-- it is over: so those count too whose lease will end a little later, as they beat at other moments.
local function many_fell_silent()
  local running, silent = 0, 0
  for _, id in ipairs(redis.call("ZRANDMEMBER", key.deadlines, SAMPLE)) do
    local stored = redis.pcall("HMGET", key.task .. id, "state", "lease")
    if RUNNING[stored[1]] then
      running = running + 1
      local half = (tonumber(stored[2]) or lease) / 2
      if redis.call("PTTL", key.heartbeat .. id) < half then silent = silent + 1 end
    end
  end
  return silent > FEW and 2 * silent > running
end

local together -- told once a sweep, and only when a lease is over

-- When a task without a lease is judged: now, or a beat after the first look where many fell silent together. It is
-- noted in the task, so that any watchdog makes the second look. A note that is too old is of an earlier silence.
local function doubted_until(task, now)
  local own = task.lease or lease
  local noted = tonumber(redis.call("HGET", key.task .. task.id, "second_look_at"))
  if noted and now < noted + math.max(own, lease) / 2 then return noted end
  if together == nil then together = many_fell_silent() end
  if not together then return now end
  local second_look_at = now + math.floor(beat * math.max(1, own / lease))
  redis.call("HSET", key.task .. task.id, "second_look_at", second_look_at)
  return second_look_at
end

-- When a task is to be looked at again; no later than now when it is to be taken away.
-- `left`: ms that the worker's lease still lasts.
local function look_at(task, now, left, judge)
  if left > 0 then return math.min(now + left, overdue_from(task)) end
  local judged = judged_from(task, judge)
  return now < judged and judged or doubted_until(task, now)
end

local function take(task, now, left)
  if must_ask_first(task) then return "kept" end
  local reason, message = Reason.HEARTBEAT_LOST, "no heartbeat from worker " .. (task.worker_id or "?")
  if left > 0 then
    reason, message = Reason.DEADLINE, "worker " .. (task.worker_id or "?") .. " did not end the attempt in time"
  end
  local finding = findings and findings[task.worker_id]
  if finding then message = message .. "; health: " .. finding end
  return take_away(task, {
    actor = actor, reason = reason, message = message,
    -- Before its lease would have ended, a live worker learns that it lost the task, and kills its horse.
    asked = math.max(0, left), fraction = math.random(),
  }, now) or "moved"
end

local problem = check_type(key.watchdog, "hash")
if problem then return problem end
local now, was_none = clock(), make_room(key.deadlines, "zset")
local judge = judge_from(now)
local swept = each_due(key.deadlines, now, limit, RUNNING, function(task)
  local left = redis.call("PTTL", key.heartbeat .. task.id)
  local again = look_at(task, now, left, judge)
  if again <= now then return take(task, now, left) end
  redis.call("ZADD", key.deadlines, again, task.id)
  return "kept"
end)
table.insert(swept, 3, to_ask)
swept[#swept + 1] = was_none
return swept
