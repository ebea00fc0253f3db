-- Renews the lease of an attempt; the reply tells its worker the state, so that no cancel goes unheard.
-- uses attempt, held
--
-- KEYS[1] hash    task:{id}
-- ARGV[1] attempt   ARGV[2] its token   ARGV[3] lease, ms
-- returns moved | already | stale | missing, with id, state, attempt, entry
-- appends nothing

local id = string.sub(KEYS[1], #key.task + 1)
local attempt, token, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])

local task, refusal = read_held(id, attempt, token, Event.HEARTBEAT)
if not task then return refusal end
renew_lease(task, lease)
return reply("moved", task)
