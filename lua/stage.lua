-- Records that an attempt reached a named stage of its work.
-- uses attempt, held
--
-- KEYS[1] hash    task:{id}
-- ARGV[1] attempt   ARGV[2] its token   ARGV[3] lease, ms   ARGV[4] actor   ARGV[5] name of the stage
-- ARGV[6] entries that a task's history may have before stages are refused
-- ARGV[7] random id of the call, by which a repeated one is known
-- returns moved | already | refused | stale | missing, with id, state, attempt, entry
-- appends STAGE

local id = string.sub(KEYS[1], #key.task + 1)
local attempt, token, lease = ARGV[1], ARGV[2], ARGV[3]
local actor, name, entries_allowed, call = ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7]

local task, refusal = read_held(id, attempt, token, Event.STAGE)
if not task then return refusal end
if redis.call("HGET", key.task .. id, "stage_call") == call then return reply("moved", task) end
if task.entries >= entries_allowed then return reply("refused", task) end
local problem = check_type(key.history, "stream")
  or check_type(key.deadlines, "zset") or check_type(key.state .. task.state, "zset")
if problem then return problem end
renew_lease(task, lease)
local move = new_move(task)
add_step(move, Event.STAGE, actor, Reason.POLICY, name)
set(move, "stage_call", call)
return commit(move, clock(), {}) or reply("moved", task)
