-- That the end of each task which a BLOCKED one waits for will find it.

local function is_noted(dependency, id)
  if redis.pcall("HEXISTS", key.task .. dependency, "dependents") ~= 1 then return false end
  return type(redis.pcall("ZSCORE", key.dependents .. dependency, id)) == "string"
end

-- Notes a task again with one that it depends on, or lets it follow an end that did not find it. Returns what is wrong,
-- or was.
local function note_again(task, dependency, actor, now)
  local state, damage = state_of(dependency)
  if damage then return damage end
  local index = key.dependents .. dependency
  local was_none = check_type(index, "zset")
  make_room(index, "zset")
  if not state or FINAL[state] then return heed(task, dependency, state, actor, now) or was_none end
  wait_for(dependency, task.id, task.entered_at)
  return was_none
end
