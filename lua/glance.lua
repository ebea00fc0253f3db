-- A first look at a task, by a few calls: whether it stands where it must. Most do, and need no closer look.

-- Returns the fields of a record that tell where its task must stand, few of a final one; nothing when they cannot.
local function glance(name)
  local values = redis.pcall("HMGET", name, "state", "entered_at", "policy", "queue", "type", "owner", "dependents")
  local state, entered_at = values[1], tonumber(values[2] or "")
  if not (STORED[state] and entered_at and values[3] and values[4] and values[5]) then return end
  local task = {
    id = string.sub(name, #key.task + 1), state = state, entered_at = entered_at,
    policy = values[3], queue = values[4], type = values[5], owner = values[6], dependents = values[7],
  }
  if FINAL[state] then return task end
  values = redis.call("HMGET", name, "parked_at", "due_at")
  task.parked_at, task.due_at = values[1], tonumber(values[2] or "")
  return (task.due_at or not WAITING_FOR_TIME[state]) and task or nil
end

-- Not by `each_place`, whose calls would be a part of what this costs.
local function stands_in_place(task, terms)
  local places = places_in(task.state)
  for position = 1, #places do
    local name, _, least, most = places[position](task, terms)
    local score = name and redis.pcall("ZSCORE", name, task.id)
    local at = type(score) == "string" and tonumber(score)
    if name and not (at and at >= least and at <= most) then return false end
  end
  return true
end

local named = {} -- places of listings that this call found named: they are few

local function is_place_named(task)
  local place = listing_place(task)
  named[place] = named[place] or redis.pcall("SISMEMBER", key.listed_places, place) == 1
  return named[place]
end

-- Whether a claim will find a PENDING task. A ticket in a short list is for a closer look; a long list is not searched.
local function will_be_found(task)
  if redis.pcall("HEXISTS", key.queues, task.queue) ~= 1 then return false end
  if task.parked_at then return redis.pcall("SISMEMBER", key.parked_types .. task.queue, task.type) == 1 end
  local length = redis.pcall("LLEN", key.rq_queue .. task.queue)
  if type(length) == "table" or length <= SHORT_LIST then return false end
  local job = redis.pcall("HMGET", key.rq_job .. task.id, "origin", "status")
  return job[1] == task.queue and job[2] == "queued"
end

local telling = {} -- tasks of which this call found that their end is told: many may wait for the same

local function will_tell(dependency)
  telling[dependency] = telling[dependency] or redis.pcall("HEXISTS", key.task .. dependency, "dependents") == 1
  return telling[dependency]
end

-- Whether the end of each task that a BLOCKED one waits for will find it. One that waits for none is for a closer look.
local function will_be_told(task, terms)
  local unmet = redis.pcall("SMEMBERS", key.unmet .. task.id)
  terms.dependencies_left = terms.dependencies_left - #unmet
  for position = 1, #unmet do
    local score = redis.pcall("ZSCORE", key.dependents .. unmet[position], task.id)
    local is_noted = type(score) == "string" and tonumber(score) == task.entered_at
    if not (is_noted and will_tell(unmet[position])) then return false end
  end
  return #unmet > 0
end

-- Whether all is well with a task as far as a glance can tell, which it cannot of one that runs.
local function is_sound(task, terms)
  if RUNNING[task.state] or not (stands_in_place(task, terms) and is_place_named(task)) then return false end
  if task.state == State.BLOCKED then return will_be_told(task, terms) end
  return task.state ~= State.PENDING or will_be_found(task)
end
