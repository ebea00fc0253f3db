-- What the end of a task means for those that wait for it: they are released or cancelled in the same script, and those
-- that wait for a cancelled one after them.

local COSTLY = 10 -- so many tasks that a cancelled dependent leaves take as long as telling one more
local spent, told = 0, 0

-- Returns the state of a task, also of a purged one while its tombstone stands; nil for one that nobody knows, and nil
-- with an error for a damaged one.
local function state_of(id)
  local name = key.task .. id
  local state, damage = fetch("hash", "HGET", name, "state")
  if damage then return nil, damage end
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
  local expected = "a list of " .. (task.dependencies or "some") .. " ids"
  return nil, damaged(name, expected, text and "something else" or "nothing")
end

-- Returns those as a set; nothing where they are damaged, and whatever says what the task waits for must be believed.
local function named_by(task)
  local ids = dependencies_of(task)
  if not ids then return end
  local named = {}
  for _, id in ipairs(ids) do named[id] = true end
  return named
end

-- Whether a task waits for this one by mistake. `named`: the answer of `named_by`
local function is_stranger(named, dependency)
  return named and not named[dependency]
end

-- Takes what a task was never to wait for out of the set of those that it waits for. Returns what was wrong.
local function forget(task, stranger)
  local unmet = key.unmet .. task.id
  local problem = damaged(unmet, "tasks that it depends on", stranger)
  redis.call("SREM", unmet, stranger)
  redis.pcall("ZREM", key.dependents .. stranger, task.id)
  quarantine(unmet, stranger, problem)
  return problem
end

-- Returns what a BLOCKED task waits for, or nil and what is wrong. Its set of them may be lost, and is rightly gone
-- when it waits for its time only: then their states tell. Who waits for its time may have outlived a dependency.
local function awaited_by(task)
  local unmet, damage = fetch("set", "SMEMBERS", key.unmet .. task.id)
  if damage then return nil, damage end
  if #unmet > 0 then return unmet end
  local ids
  ids, damage = dependencies_of(task)
  local has_time = redis.call("HEXISTS", key.task .. task.id, "due_at") == 1
  for _, id in ipairs(ids or {}) do
    local state, problem = state_of(id)
    damage = damage or problem
    if state ~= State.SUCCESS and (state or not has_time) then unmet[#unmet + 1] = id end
  end
  spent = spent + math.floor(#(ids or {}) / COSTLY)
  if damage then return nil, damage end
  return unmet
end

-- Writes the set again when it was lost, as it must not be released before. Returns what is wrong, if anything.
local function restore_unmet(task)
  if redis.call("EXISTS", key.unmet .. task.id) == 1 then return end
  local unmet, damage = awaited_by(task)
  if damage then return damage end
  if #unmet == 0 then return end
  redis.call("PERSIST", key.task .. task.id) -- needs no memory, and lets the writes after it pass at a full Redis
  redis.call("SADD", key.unmet .. task.id, unpack(unmet))
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
  local problem = check_dependency_types(task.id, {dependency})
  if problem then return problem end
  local unmet, message = key.unmet .. task.id, because(dependency, state)
  if state ~= State.SUCCESS then
    if is_stranger(named_by(task), dependency) then return forget(task, dependency) end
    return unblock(task, Event.CANCEL, actor, message, now)
  end
  problem = restore_unmet(task)
  if problem then return problem end
  local others = redis.call("SCARD", unmet) - redis.call("SISMEMBER", unmet, dependency)
  if others == 0 and not waits_for_time(task, now) then return unblock(task, Event.RELEASE, actor, message, now) end
  redis.call("SREM", unmet, dependency)
  redis.call("ZREM", key.dependents .. dependency, task.id)
end

-- Returns what keeps a dependent from being told, if anything. The index is a hint: who waits no more leaves it.
local function tell(id, ended, now)
  local task, problem = read_task(id)
  if problem then return problem end
  if task.state == State.BLOCKED then
    if ended.state ~= State.SUCCESS then spent = spent + math.floor(#unmet_of(id) / COSTLY) end
    problem = heed(task, ended.id, ended.state, "dependency:" .. ended.id, now)
    if problem then return problem end
  end
  redis.call("ZREM", key.dependents .. ended.id, id)
  told = told + 1
end

-- Returns what is wrong with the index of dependents, if anything.
local function tell_dependents(ended, now, put_aside)
  local name = key.dependents .. ended.id
  local ids, damage = fetch("zset", "ZRANGE", name, 0, BATCH - 1)
  if damage then return damage end
  for _, id in ipairs(ids) do
    if spent >= BATCH then return end
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
