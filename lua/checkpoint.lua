-- Keeps what a later attempt goes on from.
-- uses attempt, held
--
-- KEYS[1] hash    task:{id}
-- ARGV[1] attempt   ARGV[2] its token   ARGV[3] lease, ms   ARGV[4] checkpoint, JSON
-- returns moved | already | stale | missing, with id, state, attempt, entry
-- appends nothing

local id = string.sub(KEYS[1], #key.task + 1)
local attempt, token, lease = ARGV[1], ARGV[2], ARGV[3]
local value = ARGV[4]

local task, refusal = read_held(id, attempt, token, Event.PROGRESS)
if not task then return refusal end
renew_lease(task, lease)
redis.call("SET", key.checkpoint .. id, value)
return reply("moved", task)
