-- Looks again at BLOCKED tasks, a page a call: what they wait for may be gone, or have ended beside a damaged index.
-- uses batch, awaited
--
-- ARGV[1] actor   ARGV[2] tasks looked at, and dependencies of them, at most
-- returns number moved, number moved, then what was wrong with the others
-- appends RELEASE or CANCEL

local actor, limit = ARGV[1], tonumber(ARGV[2])
local blocked = key.state .. State.BLOCKED

local problem = check_type(blocked, "zset") or check_type(key.due, "zset") or check_type(key.blocked_cursor, "string")
if problem then return problem end
local now, looked, moved, problems = clock(), 0, 0, problems_of_quarantine()

-- All that it waited for ended well, and it waits for its time at most.
local function look_at_time(task)
  local due_at = waits_for_time(task, now)
  if not due_at then return unblock(task, Event.RELEASE, actor, "it waits for no task any more", now) end
  redis.call("ZADD", key.due, due_at, task.id)
end

-- Whether the end of a dependency is still to come, and will find the task.
local function will_tell(dependency, id)
  local state = state_of(dependency)
  return state and not FINAL[state] and is_noted(dependency, id)
end

local function is_in_order(id, unmet)
  for _, dependency in ipairs(unmet) do
    if not will_tell(dependency, id) then return false end
  end
  return #unmet > 0
end

-- Returns what is wrong, if anything; the task is BLOCKED no more when it was moved.
local function put_right(task, unmet)
  local damage = check_type(key.unmet .. task.id, "set") or restore_unmet(task)
  if damage then return damage end
  if #unmet == 0 then
    looked = looked + (tonumber(task.dependencies) or 0)
    unmet = unmet_of(task.id)
  end
  if #unmet == 0 then return look_at_time(task) end
  local named = named_by(task) -- once: there may be hundreds
  for _, dependency in ipairs(unmet) do
    if is_stranger(named, dependency) then
      damage = forget(task, dependency)
    else
      damage = note_again(task, dependency, actor, now)
    end
    if damage or task.state ~= State.BLOCKED then return damage end
  end
end

-- Returns whether the member of the index keeps its place, as a damaged one does: it counts, and is listed. Most are in
-- order, and cost few calls.
local function look_at(id)
  local unmet = unmet_of(id)
  looked = looked + math.max(1, #unmet)
  if is_in_order(id, unmet) then return true end
  local task, damage = read_task(id)
  if damage then
    problems[#problems + 1] = damage.err or set_aside(blocked, id, damage)
    return damage.err ~= nil
  elseif task.state ~= State.BLOCKED then
    redis.call("ZREM", blocked, id)
    return false
  end
  damage = put_right(task, unmet)
  if task.state ~= State.BLOCKED then moved = moved + 1 end
  problems[#problems + 1] = damage and damage.err
  return task.state == State.BLOCKED
end

-- Who leaves moves the others up, so one may be passed over until the next round.
local rank = tonumber(redis.call("GET", key.blocked_cursor)) or 0
redis.call("DEL", key.blocked_cursor) -- first, since it needs no memory
local page = redis.call("ZRANGE", blocked, rank, rank + limit - 1)
for index, id in ipairs(page) do
  if look_at(id) then rank = rank + 1 end
  if looked >= limit and index < #page or index == limit then
    redis.call("SET", key.blocked_cursor, rank)
    break
  end
end
return {moved, moved, unpack(problems)}
