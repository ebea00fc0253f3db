-- Looks at running tasks whose time to be looked at has come, and takes away those whose worker is gone.
-- uses attempt, batch
--
-- ARGV[1] actor   ARGV[2] tasks looked at, at most
-- ARGV[3] lease, ms   ARGV[4] longest pause between two sweeps after which leases are judged, ms
-- ARGV[5] ms that a live worker gets beyond a deadline to end the attempt itself
-- ARGV[6] seed for the jitter
-- returns number looked at, number moved, then what was wrong with the others
-- appends TIMEOUT, with RETRY or GIVE_UP

local actor, limit = ARGV[1], tonumber(ARGV[2])
local lease, gap, patience, seed = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
math.randomseed(seed)

-- Nobody swept for a while: Redis was down or stalled, and workers may not have reached it either. Then no lease
-- is judged until one full lease has passed.
local function judge_from(now)
  local seen = redis.call("HMGET", key.watchdog, "swept_at", "judge_from")
  local swept_at, judge = tonumber(seen[1]), tonumber(seen[2])
  if not swept_at or not judge or now - swept_at > gap then judge = now + lease end
  -- Needs no memory, and lets the writes after it pass at a full Redis.
  redis.call("PEXPIRE", key.watchdog, 4 * lease)
  redis.call("HSET", key.watchdog, "swept_at", now, "judge_from", judge, "actor", actor)
  redis.call("PEXPIRE", key.watchdog, 4 * lease)
  return judge
end

-- The time by which a live worker must have ended the attempt itself.
local function overdue_from(task)
  if task.state == State.PROCESSING then
    return (task.timeout_at or task.entered_at + task.policy.timeout) + patience
  end
  return task.entered_at + patience
end

local function take(task, now, alive)
  local reason, message = Reason.HEARTBEAT_LOST, "no heartbeat from worker " .. (task.worker_id or "?")
  if alive then
    reason, message = Reason.DEADLINE, "worker " .. (task.worker_id or "?") .. " did not end the attempt in time"
  end
  return take_away(task, {
    actor = actor, reason = reason, message = message,
    -- A live worker learns within a lease that it lost the task, and kills its horse.
    asked = alive and lease or 0, fraction = math.random(),
  }, now) or "moved"
end

local problem = check_types({{key.deadlines, "zset"}, {key.quarantine, "hash"}, {key.watchdog, "hash"}})
if problem then return problem end
local now = clock()
local judge = judge_from(now)
return each_due(key.deadlines, now, limit, RUNNING, function(task)
  local left, overdue = redis.call("PTTL", key.heartbeat .. task.id), overdue_from(task)
  if left > 0 and now >= overdue then return take(task, now, true) end
  if left <= 0 and now >= judge then return take(task, now, false) end
  local look_at = left > 0 and math.min(now + left, overdue) or judge
  redis.call("ZADD", key.deadlines, look_at, task.id)
  return "kept"
end)
