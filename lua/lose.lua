-- Takes a task away from a worker that is gone, without waiting for the watchdog. Where it may be cut off only, and its
-- handler still run, the next attempt is kept waiting until the lease is over.
-- uses attempt
--
-- KEYS[1] hash    task:{id}
-- ARGV[1] attempt   ARGV[2] worker id   ARGV[3] actor   ARGV[4] message for the history
-- ARGV[5] random number in [0, 1) for the jitter   ARGV[6] 1 when the worker's process is known to be dead, else 0
-- returns moved | already | stale | missing, with id, state, attempt, entry
-- appends TIMEOUT, with RETRY or GIVE_UP; CANCEL of tasks that waited for this one

local id = string.sub(KEYS[1], #key.task + 1)
local attempt, worker_id, actor, message, fraction = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local is_dead = ARGV[6] == "1"

local task, problem = read_task(id)
if not task then return problem end
if task.attempt ~= tonumber(attempt) then return reply("stale", task) end
if not RUNNING[task.state] then return reply("already", task) end
if task.worker_id ~= worker_id then return reply("stale", task) end
return take_away(task, {
  actor = actor, reason = Reason.WORKER_LOST, message = message,
  asked = is_dead and 0 or math.max(0, redis.call("PTTL", key.heartbeat .. id)), fraction = fraction,
}, clock()) or reply("moved", task)
