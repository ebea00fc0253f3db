-- Records that an attempt reached a named stage of its work.
-- uses attempt, held
--
-- KEYS[1] hash    task:{id}
-- ARGV[1] attempt   ARGV[2] its token   ARGV[3] actor   ARGV[4] name of the stage
-- ARGV[5] entries that a task's history may have before stages are refused
-- ARGV[6] random id of the call, by which a repeated one is known
-- returns moved | already | refused | stale | missing, with id, state, attempt, entry
-- appends STAGE

local id = string.sub(KEYS[1], #key.task + 1)
local attempt, token, actor, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local entries_allowed, call = tonumber(ARGV[5]), ARGV[6]

local task, refusal = read_held(id, attempt, token, Event.STAGE)
if not task then return refusal end
if redis.call("HGET", key.task .. id, "stage_call") == call then return reply("moved", task) end
if task.entries >= entries_allowed then return reply("refused", task) end
local move = new_move(task)
add_step(move, Event.STAGE, actor, Reason.POLICY, name)
move.set.stage_call = call
return commit(move, clock(), {}) or reply("moved", task)
