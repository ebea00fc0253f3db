-- Puts tasks whose waiting time is over into their queues.
-- uses batch
--
-- ARGV[1] actor   ARGV[2] tasks looked at, at most
-- returns number looked at, number moved, then what was wrong with the others
-- appends RELEASE

local actor, limit = ARGV[1], tonumber(ARGV[2])

local now, was_none = clock(), make_room(key.due, "zset")
local belongs = {[State.BLOCKED] = true} -- one that waits for other tasks and for its time
for state in pairs(WAITING_FOR_TIME) do belongs[state] = true end

-- Returns nothing for one that waits for no task any more.
local function look_at_blocked(task)
  if spent >= limit then return "kept" end -- until the next call
  local damage = restore_unmet(task)
  if damage then return damage end
  if redis.call("EXISTS", key.unmet .. task.id) == 0 then return end
  redis.call("ZREM", key.due, task.id)
  redis.call("HDEL", key.task .. task.id, "due_at")
  return "kept"
end

local released = each_due(key.due, now, limit, belongs, function(task)
  local answer = task.state == State.BLOCKED and look_at_blocked(task)
  if answer then return answer end
  local move = new_move(task)
  add_step(move, Event.RELEASE, actor, Reason.POLICY)
  move.delete = {"due_at"}
  return commit(move, now, {}) or "moved"
end)
released[#released + 1] = was_none
return released
