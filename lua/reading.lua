-- How a task is read, and whether keys are of the type that they must have. What is damaged is told, and named.

local TASK_FIELDS = {
  "attempt", "failures", "timeouts", "losses", "entries", "entered_at", "started_at", "timeout_at", "parked_at",
  "lease", "patience",
  "state", "type", "queue", "owner", "token", "worker_id", "policy", "dependencies", "dependents", "secrets",
}
local NUMBERS = 11 -- so many of these fields, the first ones, are whole numbers

local function clock()
  local time = redis.call("TIME")
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- For what is to end after a while of Redis' time.
local function microseconds()
  local time = redis.call("TIME")
  return time[1] * 1000000 + time[2]
end

local function damaged(name, expected, got)
  return redis.error_reply("CORRUPT " .. name .. ": expected " .. expected .. ", got " .. tostring(got))
end

-- Returns the whole number that a text is; nil for any other text, and beyond 2^53, where Lua's numbers lose digits.
local function whole(text)
  local value = string.find(text, "^%d+$") and tonumber(text)
  if value and value < 2 ^ 53 then return value end
end

local checked = {} -- keys that this call found to be of the right type, or not there: so it stays

-- Returns what is wrong with a key that is there, and of another type.
local function check_type(name, kind)
  if checked[name] then return end
  local actual = redis.call("TYPE", name).ok
  if actual ~= kind and actual ~= "none" then return damaged(name, kind, actual) end
  checked[name] = true
end

-- Reads a key of a kind by a command that is for this kind only, which is a check as well. Returns its answer, or nil
-- and what is wrong.
local function fetch(kind, command, name, ...)
  local answer = redis.pcall(command, name, ...)
  if type(answer) == "table" and answer.err then return nil, damaged(name, kind, redis.call("TYPE", name).ok) end
  checked[name] = true
  return answer
end

-- Whether a text is whole numbers joined by commas.
local function is_packed(text)
  return string.find(text, "^%d[%d,]*$") and not string.find(text .. ",", ",,", 1, true)
end

-- Returns one of the numbers of a task's packed policy. One of another version is read too: what it lacks has its
-- default, what is not known here is passed over. None is so long that a time which follows from it lost digits.
local function term(task, name)
  return math.min(tonumber(string.match(task.policy, TERMS[name]) or DEFAULT_TERMS[name]), 2 ^ 52)
end

-- Returns the fields of a task that are there, or nil and what is wrong with one.
local function to_fields(id, values)
  local task = {id = id, attempt = 0, failures = 0, timeouts = 0, losses = 0, entries = 0}
  for index = 1, #TASK_FIELDS do
    local field, value = TASK_FIELDS[index], values[index]
    if value and index <= NUMBERS then
      value = whole(value)
      if not value then return nil, damaged(key.task .. id .. " field " .. field, "a whole number", values[index]) end
    end
    if value then task[field] = value end
  end
  return task
end

-- Returns what is wrong with a task's fields, if anything.
local function fault_of_fields(task)
  local name = key.task .. task.id .. " field "
  if not STORED[task.state or ""] then return damaged(name .. "state", "a state", task.state) end
  if not string.find(task.type or "", "^[%w._-]+$") then
    return damaged(name .. "type", "the name of a task type", task.type)
  end
  if not task.queue then return damaged(name .. "queue", "a queue name", task.queue) end
  if not task.entered_at then return damaged(name .. "entered_at", "a time in ms", task.entered_at) end
  if not is_packed(task.policy or "") then return damaged(name .. "policy", "numbers", task.policy) end
end

-- Returns the task, or nil and the reply that says why not.
local function read_task(id)
  local values, damage = fetch("hash", "HMGET", key.task .. id, unpack(TASK_FIELDS))
  if damage then return nil, damage end
  local task, fault = to_fields(id, values)
  if task and not task.state and redis.call("EXISTS", key.task .. id) == 0 then return nil, {"missing"} end
  fault = fault or fault_of_fields(task)
  if fault then return nil, fault end
  return task
end

-- Keeps what is wrong with a member that is taken out of an index or a queue. The damage is beside the good ones, and
-- must not keep them from their turn: no more may a quarantine that is none.
local function quarantine(place, id, problem)
  redis.pcall("HSET", key.quarantine, place .. " " .. id, problem.err or "no task of this id")
end

local function reply(word, task)
  return {word, "id", task.id, "state", task.state, "attempt", task.attempt, "entry", task.entry or ""}
end
