-- Works through what is due in an index, a bounded number at a time, so that Redis never waits long.
-- Index entries are hints, the task is the truth: a wrong entry is removed, a damaged one put in quarantine,
-- and neither keeps the others from their turn.

local LOOK_AGAIN = 10000 -- ms until a task that could not be moved is tried again

-- The rest of a name, or nothing when it begins otherwise.
local function behind(beginning, name)
  return string.sub(name, 1, #beginning) == beginning and string.sub(name, #beginning + 1) or nil
end

-- Takes what stands there by mistake out of an index, whatever sort that is of.
local function take_out(index, id)
  local listed = behind(key.listed, index)
  if listed then return vacate(index, id, key.listed_places, listed) end
  local queue, task_type = string.match(behind(key.parked, index) or "", "^(.*):(.*)$")
  if queue then return vacate(index, id, key.parked_types .. queue, task_type) end
  redis.call("ZREM", index, id)
end

-- `problem` is what `read_task` answered beside no task. Returns what is to be told of it.
local function set_aside(index, id, problem)
  take_out(index, id)
  quarantine(index, id, problem)
  return problem.err or ("CORRUPT " .. index .. ": no task " .. id)
end

-- Sets aside what stands in the place of an index, and would hold up every task that belongs there: the records tell
-- what must stand in it. This needs no memory. Returns what was wrong, if anything.
local function make_room(name, kind)
  local damage = check_type(name, kind)
  if not damage then return end
  redis.call("RENAME", name, key.set_aside .. name)
  redis.call("PEXPIRE", key.set_aside .. name, key.set_aside_life)
  return damage.err
end

-- What is told each time, since nobody else looks there.
local function problems_of_quarantine()
  local damage = check_type(key.quarantine, "hash")
  return {damage and damage.err}
end

-- `act(task)` returns "moved", "kept", "later" or an error reply. Returns {looked at, moved, problems...}.
local function each_of(index, ids, now, belongs, act)
  local moved, problems = 0, problems_of_quarantine()
  for _, id in ipairs(ids) do
    local task, problem = read_task(id)
    if problem then
      problems[#problems + 1] = set_aside(index, id, problem)
    elseif not belongs[task.state] then
      redis.call("ZREM", index, id)
    else
      local answer = act(task)
      if answer == "moved" then
        moved = moved + 1
      elseif answer ~= "kept" then
        redis.call("ZADD", index, "XX", now + LOOK_AGAIN, id)
        if answer ~= "later" then problems[#problems + 1] = answer.err end
      end
    end
  end
  return {#ids, moved, unpack(problems)}
end

local function each_due(index, now, limit, belongs, act)
  local ids = redis.call("ZRANGEBYSCORE", index, "-inf", now, "LIMIT", 0, limit)
  return each_of(index, ids, now, belongs, act)
end
