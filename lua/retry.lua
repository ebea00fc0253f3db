-- Gives a task that ended badly another life: due at once, with fresh budgets.
-- uses person
--
-- KEYS[1] hash    task:{id}
-- ARGV[1] actor   ARGV[2] reason   ARGV[3] message
-- returns moved | already | refused | missing, with id, state, attempt, entry
-- appends RETRY

local id = string.sub(KEYS[1], #key.task + 1)
local actor, reason, message = ARGV[1], ARGV[2], ARGV[3]

return ask(id, Event.RETRY, actor, reason, message)
