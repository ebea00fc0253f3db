-- Renews the lease of an attempt; the reply tells its worker the state, so that no cancel goes unheard.
-- An attempt that got more time than its timeout says so with each beat: no lost reply leaves an old deadline behind.
-- uses attempt, held
--
-- KEYS[1] hash    task:{id}
-- ARGV[1] attempt   ARGV[2] its token   ARGV[3] lease, ms
-- ARGV[4] what the attempt may run, ms from its START, when that is more than its timeout; else ""
-- returns moved | already | stale | missing, with id, state, attempt, entry
-- appends nothing

local id = string.sub(KEYS[1], #key.task + 1)
local attempt, token, lease, longest_run = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local task, refusal = read_held(id, attempt, token, Event.HEARTBEAT)
if not task then return refusal end
renew_lease(task, lease)
if longest_run and task.started_at then
  redis.call("HSET", key.task .. id, "timeout_at", task.started_at + longest_run)
end
return reply("moved", task)
