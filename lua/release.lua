-- Puts tasks whose waiting time is over into their queues.
-- uses batch
--
-- ARGV[1] actor   ARGV[2] tasks looked at, at most
-- returns number looked at, number moved, then what was wrong with the others
-- appends RELEASE

local actor, limit = ARGV[1], tonumber(ARGV[2])

local now = clock()
local problem = check_types({{key.due, "zset"}})
if problem then return problem end
return each_due(key.due, now, limit, WAITING_FOR_TIME, function(task)
  local move = new_move(task)
  add_step(move, Event.RELEASE, actor, Reason.POLICY)
  move.delete = {"due_at"}
  return commit(move, now, {}) or "moved"
end)
