-- Notes how far an attempt is: a snapshot in the task, and a message to those who listen now.
-- uses attempt, held
--
-- KEYS[1] hash    task:{id}
-- ARGV[1] attempt   ARGV[2] its token   ARGV[3] lease, ms
-- ARGV[4] fraction done, 0 to 1         ARGV[5] message, at most 64 bytes
-- returns moved | already | stale | missing, with id, state, attempt, entry
-- appends nothing

local id = string.sub(KEYS[1], #key.task + 1)
local attempt, token, lease = ARGV[1], ARGV[2], ARGV[3]
local fraction, message = ARGV[4], ARGV[5]

local task, refusal = read_held(id, attempt, token, Event.PROGRESS)
if not task then return refusal end
local done = tonumber(fraction)
if not done or not (done >= 0 and done <= 1) then
  return damaged("argument fraction", "a number from 0 to 1", fraction)
end
renew_lease(task, lease)
local now = clock()
redis.call("HSET", key.task .. id, "progress", fraction, "message", message, "progress_at", now)
tell_listeners(task, "progress", {progress = done, message = message, at = now})
return reply("moved", task)
