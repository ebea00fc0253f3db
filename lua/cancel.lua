-- Cancels a task: at once where nobody holds it, else by asking its worker to stop.
-- uses person
--
-- KEYS[1] hash    task:{id}
-- ARGV[1] actor   ARGV[2] reason   ARGV[3] message
-- returns moved | already | missing, with id, state, attempt, entry
-- appends CANCEL, also of tasks that waited for this one

local id = string.sub(KEYS[1], #key.task + 1)
local actor, reason, message = ARGV[1], ARGV[2], ARGV[3]

return ask(id, Event.CANCEL, actor, reason, message)
