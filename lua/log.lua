-- Appends lines to the task's log, of which the last ones are kept.
-- uses attempt, held
--
-- KEYS[1] hash    task:{id}
-- ARGV[1] attempt   ARGV[2] its token   ARGV[3] lease, ms
-- ARGV[4] lines kept   ARGV[5] random id of the call, by which a repeated one is known   ARGV[6..n] lines
-- returns moved | already | stale | missing, with id, state, attempt, entry
-- appends nothing

local id = string.sub(KEYS[1], #key.task + 1)
local attempt, token, lease = ARGV[1], ARGV[2], ARGV[3]
local kept, call = tonumber(ARGV[4]), ARGV[5]

local task, refusal = read_held(id, attempt, token, Event.PROGRESS)
if not task then return refusal end
local problem = check_type(key.log .. id, "list")
if problem then return problem end
renew_lease(task, lease)
if redis.call("HGET", key.task .. id, "log_call") == call then return reply("moved", task) end
redis.call("HSET", key.task .. id, "log_call", call)
for index = 6, #ARGV do
  redis.call("RPUSH", key.log .. id, ARGV[index])
  tell_listeners(task, "log", {line = ARGV[index]})
end
redis.call("LTRIM", key.log .. id, -kept, -1)
return reply("moved", task)
