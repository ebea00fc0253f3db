-- The one way a task changes. Every verb reads the task, adds legal steps to a move, and commits it.
-- Nothing is written before everything was checked: Redis keeps the writes of a script that errs half-way.

local TASK_FIELDS = {
  "state", "type", "queue", "owner", "attempt", "token", "worker_id", "entered_at", "started_at", "timeout_at",
  "parked_at", "lease", "patience", "policy", "clocks", "failures", "timeouts", "losses", "entries", "fingerprint",
  "dependencies", "dependents", "secrets",
}
local INTEGERS = {"attempt", "failures", "timeouts", "losses", "entries"}
local TIMES = {"entered_at", "started_at", "timeout_at", "parked_at", "lease", "patience"}

local function clock()
  local time = redis.call("TIME")
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function damaged(name, expected, got)
  return redis.error_reply("CORRUPT " .. name .. ": expected " .. expected .. ", got " .. tostring(got))
end

-- Returns the whole number that a text is; nil for any other text, and beyond 2^53, where Lua's numbers lose digits.
local function whole(text)
  local value = string.find(text, "^%d+$") and tonumber(text)
  if value and value < 2 ^ 53 then return value end
end

-- A policy of another version is read too: what it lacks has its default, what is not known here is passed over.
-- `clocks` is its last part, which most tasks lack.
local function unpack_policy(packed, clocks)
  local policy, position = {}, 0
  for value in string.gmatch((packed or "") .. (clocks and "," .. clocks or "") .. ",", "([^,]*),") do
    position = position + 1
    if not whole(value) then return nil end
    if POLICY[position] then policy[POLICY[position].name] = whole(value) end
  end
  for _, field in ipairs(POLICY) do policy[field.name] = policy[field.name] or field.default end
  return policy
end

local function to_integers(task, name)
  for _, field in ipairs(INTEGERS) do
    local value = whole(task[field] or "0")
    if not value then return damaged(name .. " field " .. field, "a whole number", task[field]) end
    task[field] = value
  end
  for _, field in ipairs(TIMES) do
    local value = task[field] and whole(task[field])
    if task[field] and not value then return damaged(name .. " field " .. field, "a time in ms", task[field]) end
    task[field] = value
  end
end

-- Returns the task, or nil and the reply that says why not.
local function read_task(id)
  local name = key.task .. id
  local values = redis.pcall("HMGET", name, unpack(TASK_FIELDS))
  if values.err then return nil, damaged(name, "hash", redis.call("TYPE", name).ok) end
  local task = {id = id}
  for index, field in ipairs(TASK_FIELDS) do task[field] = values[index] or nil end
  if not task.state and redis.call("EXISTS", name) == 0 then return nil, {"missing"} end
  if not STORED[task.state or ""] then return nil, damaged(name .. " field state", "a state", task.state) end
  if not string.find(task.type or "", "^[%w._-]+$") then
    return nil, damaged(name .. " field type", "the name of a task type", task.type)
  end
  if not task.queue then return nil, damaged(name .. " field queue", "a queue name", task.queue) end
  if not task.entered_at then return nil, damaged(name .. " field entered_at", "a time in ms", task.entered_at) end
  local problem = to_integers(task, name)
  if problem then return nil, problem end
  task.policy = unpack_policy(task.policy, task.clocks)
  if not task.policy then return nil, damaged(name .. " field policy", #POLICY .. " numbers", "something else") end
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

-- A move: one or more steps through the table. Only its first and last state are ever seen by others.

local function new_move(task)
  return {task = task, state = task.state, steps = {}, set = {}, delete = {}}
end

local function verdict(state, event)
  local arrow = state .. " " .. event
  if MOVES[arrow] then return "moved" end
  if ALREADY[arrow] then return "already" end
  return "refused"
end

-- Only for arrows that the caller knows to be in the table.
local function add_step(move, event, actor, reason, message)
  local target = MOVES[move.state .. " " .. event]
  move.steps[#move.steps + 1] = {
    event = event, from = move.state, to = target, actor = actor, reason = reason, message = message or "",
  }
  move.state = target
end

local function parking_place(queue, task_type)
  return key.parked .. queue .. ":" .. task_type
end

local function queue_places(queue)
  return {
    {key.pending .. queue, "zset"}, {key.rq_queue .. queue, "list"}, {key.rq_queues, "set"},
    {key.wake .. queue, "list"}, {key.queues, "hash"},
  }
end

local function parking_places(queue, task_type)
  return {
    {parking_place(queue, task_type), "zset"}, {key.parked_types .. queue, "set"},
    {key.wake .. queue, "list"}, {key.queues, "hash"},
  }
end

-- The tasks that a BLOCKED one waits for; none where that is damaged, which a check of its places finds.
local function unmet_of(id)
  local ids = redis.pcall("SMEMBERS", key.unmet .. id)
  return ids.err and {} or ids
end

-- A BLOCKED task stands with each task that it waits for, and in `due` when it waits for its time too.
local function blocked_places(id, unmet)
  local names = {{key.unmet .. id, "set"}, {key.due, "zset"}}
  for _, dependency in ipairs(unmet) do names[#names + 1] = {key.dependents .. dependency, "zset"} end
  return names
end

-- The index of its owner's tasks, with its type; nil for a task without one, which pays nothing for it.
local function owner_place(task)
  return task.owner and {key.owned .. task.owner, "zset"}
end

-- The keys that hold a task in a state, beside its hash, with their types.
local function places(task, state, is_parked, unmet)
  local names = {}
  if state == State.PENDING then
    names = is_parked and parking_places(task.queue, task.type) or queue_places(task.queue)
  elseif state == State.BLOCKED then
    names = blocked_places(task.id, unmet or unmet_of(task.id))
  elseif RUNNING[state] then
    names[#names + 1] = {key.deadlines, "zset"}
  elseif WAITING_FOR_TIME[state] then
    names[#names + 1] = {key.due, "zset"}
  elseif FINAL[state] then
    names[#names + 1] = {key.retention, "zset"}
    if task.dependents then names[#names + 1] = {key.settling, "zset"} end
  end
  names[#names + 1] = {key.state .. state, "zset"}
  return names
end

local function check_types(...)
  for _, names in ipairs({...}) do
    for _, expected in ipairs(names) do
      local kind = redis.call("TYPE", expected[1]).ok
      if kind ~= "none" and kind ~= expected[2] then return damaged(expected[1], expected[2], kind) end
    end
  end
end

-- HINCRBY on anything but a number would err after the other writes.
local function check_ledger(field)
  local problem = check_types({{key.ledger, "hash"}})
  if problem then return problem end
  local count = redis.call("HGET", key.ledger, field)
  if count and not whole(count) then return damaged(key.ledger .. " field " .. field, "a whole number", count) end
end

local function push_hint(queue)
  if redis.call("LLEN", key.wake .. queue) < WAKE_HINTS then redis.call("RPUSH", key.wake .. queue, "") end
end

local function push_ticket(task, at_front)
  redis.call("DEL", key.rq_job .. task.id)
  redis.call("HSET", key.rq_job .. task.id, "origin", task.queue, unpack(TICKET))
  redis.call(at_front and "LPUSH" or "RPUSH", key.rq_queue .. task.queue, task.id)
  redis.call("SADD", key.rq_queues, key.rq_queue .. task.queue)
  push_hint(task.queue)
end

-- A parked task has no ticket: only a claim that serves its type finds it. The hint is for such a worker.
local function park(task, entered_at)
  redis.call("DEL", key.rq_job .. task.id)
  redis.call("ZADD", parking_place(task.queue, task.type), entered_at, task.id)
  redis.call("SADD", key.parked_types .. task.queue, task.type)
  push_hint(task.queue)
end

local function leave_parking(queue, task_type, id)
  local place = parking_place(queue, task_type)
  redis.call("ZREM", place, id)
  if redis.call("EXISTS", place) == 0 then redis.call("SREM", key.parked_types .. queue, task_type) end
end

local function leave_queue(task, to, options)
  if task.parked_at then return leave_parking(task.queue, task.type, task.id) end
  if not options.ticket_taken then
    redis.call("DEL", key.rq_job .. task.id)
    -- A started ticket is at the head of its queue; a person mostly cancels what is young, at the tail.
    local is_at_head = to == State.PROCESSING or options.is_oldest
    redis.call("LREM", key.rq_queue .. task.queue, is_at_head and 1 or -1, task.id)
  end
  redis.call("ZREM", key.pending .. task.queue, task.id)
end

local function leave_dependencies(id)
  for _, dependency in ipairs(unmet_of(id)) do redis.call("ZREM", key.dependents .. dependency, id) end
  redis.call("DEL", key.unmet .. id)
  redis.call("ZREM", key.due, id)
end

-- Removals come first: over `maxmemory` Redis lets a script run through after a write that frees memory.
local function leave(task, to, options)
  local from, id = task.state, task.id
  if RUNNING[from] and not RUNNING[to] then
    redis.call("DEL", key.heartbeat .. id)
    redis.call("ZREM", key.deadlines, id)
  elseif from == State.PENDING then
    leave_queue(task, to, options)
  elseif from == State.BLOCKED then
    leave_dependencies(id)
  elseif WAITING_FOR_TIME[from] then
    redis.call("ZREM", key.due, id)
  elseif FINAL[from] then
    redis.call("ZREM", key.retention, id)
    if task.dependents then redis.call("ZREM", key.settling, id) end
  end
  redis.call("ZREM", key.state .. from, id)
end

local function enter_queue(task, now, options)
  if options.parked then
    park(task, now)
  else
    push_ticket(task, options.at_front)
    redis.call("ZADD", key.pending .. task.queue, now, task.id)
  end
  redis.call("HSETNX", key.queues, task.queue, "running")
end

-- The field in the hash of a dependency makes its end look for dependents; tasks without any pay nothing.
local function wait_for(dependency, id, since)
  redis.call("ZADD", key.dependents .. dependency, since, id)
  redis.call("HSET", key.task .. dependency, "dependents", 1)
end

local function enter_dependencies(id, now, options)
  redis.call("SADD", key.unmet .. id, unpack(options.unmet))
  for _, dependency in ipairs(options.unmet) do wait_for(dependency, id, now) end
  if options.due_at then redis.call("ZADD", key.due, options.due_at, id) end
end

-- `options`: at_front, parked, ticket_taken, is_oldest, lease (ms), due_at (ms), unmet (ids)
local function enter(task, to, now, options)
  local id = task.id
  if to == State.PENDING then
    enter_queue(task, now, options)
  elseif to == State.BLOCKED then
    enter_dependencies(id, now, options)
  elseif RUNNING[to] and not RUNNING[task.state] then
    redis.call("SET", key.heartbeat .. id, task.worker_id .. " " .. task.attempt, "PX", options.lease)
    redis.call("ZADD", key.deadlines, now + options.lease, id)
  elseif WAITING_FOR_TIME[to] then
    redis.call("ZADD", key.due, options.due_at, id)
  elseif FINAL[to] then
    redis.call("ZADD", key.retention, now + task.policy.retention, id)
  end
  if task.owner then redis.call("ZADD", key.owned .. task.owner, now, id) end
  redis.call("ZADD", key.state .. to, now, id)
end

-- Appends the steps to the history and notes the entries' ids in the task, to live as long as it does.
local function record(move)
  local task = move.task
  for _, step in ipairs(move.steps) do
    task.entry = redis.call(
      "XADD", key.history, "*", "task", task.id, "type", task.type or "", "queue", task.queue,
      "owner", task.owner or "",
      "event", step.event, "from", step.from, "to", step.to, "attempt", task.attempt,
      "actor", step.actor, "reason", step.reason, "message", step.message
    )
    task.entries = task.entries + 1
    move.set["h" .. task.entries] = task.entry
  end
  move.set.entries = task.entries
end

local function write_fields(move)
  local pairs_to_set = {}
  for field, value in pairs(move.set) do
    pairs_to_set[#pairs_to_set + 1] = field
    pairs_to_set[#pairs_to_set + 1] = value
  end
  redis.call("HSET", key.task .. move.task.id, unpack(pairs_to_set))
  if #move.delete > 0 then redis.call("HDEL", key.task .. move.task.id, unpack(move.delete)) end
end

local settle -- tells those that wait for a task that it ended; see the part `dependents`

-- Writes the move, or returns the error that forbids it and writes nothing.
local function commit(move, now, options)
  local task, to = move.task, move.state
  local moved = task.state ~= to
  local problem = check_types(
    {{key.history, "stream"}, moved and owner_place(task) or nil},
    task.state and places(task, task.state, task.parked_at) or {}, places(task, to, options.parked, options.unmet)
  )
  if problem then return problem end
  if task.state and moved then leave(task, to, options) end
  record(move)
  if task.state == State.PENDING then move.delete[#move.delete + 1] = "unticketed_at" end
  if options.parked then
    move.set.parked_at = now
  elseif task.parked_at then
    move.delete[#move.delete + 1] = "parked_at"
  end
  if moved then
    move.set.state = to
    move.set.entered_at = now
    move.set.reason = move.steps[#move.steps].reason
  end
  write_fields(move)
  if moved then enter(task, to, now, options) end
  task.state = to
  if FINAL[to] and task.dependents then settle(task, now) end
end

-- A worker holds a copy of the state; the hint makes it look at the truth now, not at its next beat.
local function hint_worker(task)
  if task.worker_id then
    local command = cjson.encode({command = "ghostless", task_id = task.id, attempt = task.attempt})
    redis.call("PUBLISH", key.rq_commands .. task.worker_id, command)
  end
end
