-- What the end of a task means for those that wait for it: they are released or cancelled in the same script, and those
-- that wait for a cancelled one after them.

local TOLD_AT_MOST = 100 -- dependents told in one call; the watchdog tells the others
local COSTLY = 10 -- so many tasks that a cancelled dependent leaves take as long as telling one more
local spent, told = 0, 0

-- Returns the state of a task, also of a purged one while its tombstone stands; nil for one that nobody knows, and nil
-- with an error for a damaged one.
local function state_of(id)
  local name = key.task .. id
  local state = redis.pcall("HGET", name, "state")
  if type(state) == "table" then return nil, damaged(name, "hash", redis.call("TYPE", name).ok) end
  if not state and redis.call("EXISTS", name) == 0 then
    local tombstone = redis.pcall("GET", key.tombstone .. id)
    if not tombstone then return nil end
    state = type(tombstone) == "string" and string.match(tombstone, "^%S+")
  end
  if STORED[state or ""] then return state end
  return nil, damaged(name .. " field state", "a state", state)
end

-- Returns the ids of the tasks that a task depends on, as they were submitted, or nil and what is wrong with them.
local function dependencies_of(task)
  local name = key.depends_on .. task.id
  local text = redis.pcall("GET", name)
  local is_json, ids = pcall(cjson.decode, type(text) == "string" and text or "")
  local is_right = is_json and type(ids) == "table" and #ids == tonumber(task.dependencies)
  for _, id in ipairs(is_right and ids or {}) do is_right = is_right and type(id) == "string" end
  if is_right then return ids end
  return nil, damaged(name, "a list of " .. (task.dependencies or "some") .. " ids", text and "something else" or "nothing")
end

local function because(dependency, state)
  return "task " .. dependency .. ", which it depends on, is " .. (state or "gone")
end

local function waits_for_time(task, now)
  local due_at = tonumber(redis.call("HGET", key.task .. task.id, "due_at"))
  return due_at and due_at > now and due_at
end

-- Returns the error that forbids the move, if any.
local function unblock(task, event, actor, message, now)
  local move = new_move(task)
  add_step(move, event, actor, Reason.DEPENDENCY, message)
  move.delete = {"due_at"}
  return commit(move, now, {})
end

-- A task that a BLOCKED one waits for ended in `state`, or is gone. Returns the error that forbids what follows.
local function heed(task, dependency, state, actor, now)
  local problem = check_types(blocked_places(task.id, {dependency}))
  if problem then return problem end
  local unmet, message = key.unmet .. task.id, because(dependency, state)
  if state ~= State.SUCCESS then return unblock(task, Event.CANCEL, actor, message, now) end
  local others = redis.call("SCARD", unmet) - redis.call("SISMEMBER", unmet, dependency)
  if others == 0 and not waits_for_time(task, now) then return unblock(task, Event.RELEASE, actor, message, now) end
  redis.call("SREM", unmet, dependency)
  redis.call("ZREM", key.dependents .. dependency, task.id)
end

-- Returns what keeps a dependent from being told, if anything. The index is a hint: who waits no more leaves it.
local function tell(id, ended, now)
  local task, problem = read_task(id)
  if problem then return problem.err or "no task of this id" end
  if task.state == State.BLOCKED then
    if ended.state ~= State.SUCCESS then spent = spent + math.floor(#unmet_of(id) / COSTLY) end
    problem = heed(task, ended.id, ended.state, "dependency:" .. ended.id, now)
    if problem then return problem.err end
  end
  redis.call("ZREM", key.dependents .. ended.id, id)
  told = told + 1
end

-- Returns what is wrong with the index of dependents, if anything.
local function tell_dependents(ended, now, put_aside)
  local name = key.dependents .. ended.id
  local ids = redis.pcall("ZRANGE", name, 0, TOLD_AT_MOST - 1)
  if ids.err then return damaged(name, "zset", redis.call("TYPE", name).ok).err end
  for _, id in ipairs(ids) do
    if spent >= TOLD_AT_MOST then return end
    spent = spent + 1
    local problem = tell(id, ended, now)
    if problem and put_aside then put_aside(name, id, problem) end
  end
end

-- Tells the dependents of a task that ended, and returns whether none is left. A damaged one keeps nobody from ending:
-- it is left to the watchdog, which hands in `put_aside(index, id, problem)`.
settle = function(ended, now, put_aside)
  redis.call("ZREM", key.settling, ended.id) -- first, since it needs no memory
  local damage = tell_dependents(ended, now, put_aside)
  if damage and put_aside then
    put_aside(key.settling, ended.id, damage)
  elseif damage or redis.call("EXISTS", key.dependents .. ended.id) == 1 then
    redis.call("ZADD", key.settling, now, ended.id)
    return false
  end
  redis.call("HDEL", key.task .. ended.id, "dependents")
  return true
end
