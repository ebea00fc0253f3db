-- The one way a task changes. Every verb reads the task, adds legal steps to a move, and commits it.
-- Nothing is written before everything was checked: Redis keeps the writes of a script that errs half-way.

-- A move: one or more steps through the table. Only its first and last state are ever seen by others. Its `fields` are
-- what it sets in the task, names and values one behind the other, `delete` the names of those that it removes.

local function new_move(task)
  return {task = task, state = task.state, steps = {}, fields = {}, delete = {}}
end

local function set(move, field, value)
  local fields = move.fields
  local number = #fields
  fields[number + 1], fields[number + 2] = field, value
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

-- The tasks that a BLOCKED one waits for; none where that is damaged, which a check of its places finds.
local function unmet_of(id)
  return fetch("set", "SMEMBERS", key.unmet .. id) or {}
end

local function check_queue_types(queue)
  return check_type(key.pending .. queue, "zset") or check_type(key.rq_queue .. queue, "list")
end

local function check_parking_types(queue, task_type)
  return check_type(parking_place(queue, task_type), "zset") or check_type(key.parked_types .. queue, "set")
end

-- What is written besides when a task enters its queue, or is parked.
local function check_entrance_types(queue)
  return check_type(key.queues, "hash") or check_type(key.rq_queues, "set")
end

-- A BLOCKED task stands with each task that it waits for, and in `due` when it waits for its time too.
local function check_dependency_types(id, unmet)
  local problem = check_type(key.unmet .. id, "set") or check_type(key.due, "zset")
  for _, dependency in ipairs(unmet) do problem = problem or check_type(key.dependents .. dependency, "zset") end
  return problem
end

local function check_end_types(task)
  return check_type(key.retention, "zset") or task.dependents and check_type(key.settling, "zset")
end

-- Returns what is wrong with the keys that hold a task in a state, beside its hash.
local function check_place_types(task, state, is_parked, unmet)
  local problem
  if state == State.PENDING and is_parked then
    problem = check_parking_types(task.queue, task.type)
  elseif state == State.PENDING then
    problem = check_queue_types(task.queue)
  elseif state == State.BLOCKED then
    problem = check_dependency_types(task.id, unmet or unmet_of(task.id))
  elseif RUNNING[state] then
    problem = check_type(key.deadlines, "zset")
  elseif WAITING_FOR_TIME[state] then
    problem = check_type(key.due, "zset")
  elseif FINAL[state] then
    problem = check_end_types(task)
  end
  return problem or check_type(key.state .. state, "zset")
end

-- The index of its owner's tasks. One without an owner pays nothing for it.
local function check_owner_type(task)
  return task.owner and check_type(key.owned .. task.owner, "zset")
end

-- Where listings find the tasks of one type in one queue.
local function listing_place(task)
  return task.queue .. ":" .. task.type
end

-- Takes a task out of one of the indices that a set names, and out of the set what holds no task any more.
local function vacate(index, id, names, name)
  redis.pcall("ZREM", index, id)
  if redis.call("EXISTS", index) == 0 then redis.pcall("SREM", names, name) end
end

-- No task's way depends on how it is listed, so damage there stops none: hence pcall, and no check before. The place is
-- named with its first entry, and where entries fail, for listings to tell of the damage.
local function enter_listing(task, state, at)
  local place = listing_place(task)
  local score = string.format("%.0f", STORED[state] + at)
  local was_there = redis.pcall("ZADD", key.listed .. place, score, task.id) == 0
  if not was_there then redis.pcall("SADD", key.listed_places, place) end
end

local function leave_listing(task)
  local place = listing_place(task)
  vacate(key.listed .. place, task.id, key.listed_places, place)
end

-- HINCRBY on anything but a number would err after the other writes.
local function check_ledger(field)
  local count, damage = fetch("hash", "HGET", key.ledger, field)
  if damage then return damage end
  if count and not whole(count) then return damaged(key.ledger .. " field " .. field, "a whole number", count) end
end

-- A hint that cannot be left costs a poll, and must keep no task from its queue.
local function push_hint(queue)
  local length = redis.pcall("LLEN", key.wake .. queue)
  if type(length) == "number" and length < WAKE_HINTS then redis.call("RPUSH", key.wake .. queue, "") end
end

-- Whether what rq keeps of a job is a ticket of ours, of whatever version: else it is a plain job of rq's.
local function is_ticket(id)
  local length = redis.pcall("HSTRLEN", key.rq_job .. id, "data")
  if type(length) == "table" or length > LONGEST_CALL then return false end
  local call = redis.call("HGET", key.rq_job .. id, "data")
  return type(call) == "string" and string.find(call, TICKET_FUNCTION, 1, true) ~= nil
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
  vacate(parking_place(queue, task_type), id, key.parked_types .. queue, task_type)
end

-- A ticket in the middle of a long list is far from both ends; where it is, the index of the queue's tasks tells.
local function nearer_end(task)
  local rank = redis.call("ZRANK", key.pending .. task.queue, task.id)
  return rank and 2 * rank < redis.call("ZCARD", key.pending .. task.queue) and "1" or "-1"
end

local function leave_queue(task, to, options)
  if task.parked_at then return leave_parking(task.queue, task.type, task.id) end
  if not options.ticket_taken then
    redis.call("DEL", key.rq_job .. task.id)
    redis.call("LREM", key.rq_queue .. task.queue, to == State.PROCESSING and "1" or nearer_end(task), task.id)
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

local function enter_queue(task, at, options)
  if options.parked then
    park(task, at)
  else
    push_ticket(task, options.at_front)
    redis.call("ZADD", key.pending .. task.queue, at, task.id)
  end
  redis.call("HSETNX", key.queues, task.queue, "running")
end

-- The field in the hash of a dependency makes its end look for dependents; tasks without any pay nothing.
local function wait_for(dependency, id, since)
  redis.call("ZADD", key.dependents .. dependency, since, id)
  redis.call("HSET", key.task .. dependency, "dependents", 1)
end

local function enter_dependencies(id, at, options)
  redis.call("SADD", key.unmet .. id, unpack(options.unmet))
  for _, dependency in ipairs(options.unmet) do wait_for(dependency, id, at) end
  if options.due_at then redis.call("ZADD", key.due, options.due_at, id) end
end

-- `at` is now, as text. `options`: at_front, parked, ticket_taken, lease (ms), due_at (ms), unmet (ids)
local function enter(task, to, now, at, options)
  local id = task.id
  if to == State.PENDING then
    enter_queue(task, at, options)
  elseif to == State.BLOCKED then
    enter_dependencies(id, at, options)
  elseif RUNNING[to] and not RUNNING[task.state] then
    redis.call("SET", key.heartbeat .. id, task.worker_id .. " " .. task.attempt, "PX", options.lease)
    redis.call("ZADD", key.deadlines, now + options.lease, id)
  elseif WAITING_FOR_TIME[to] then
    redis.call("ZADD", key.due, options.due_at, id)
  elseif FINAL[to] then
    redis.call("ZADD", key.retention, now + term(task, "retention"), id)
  end
  if task.owner then redis.call("ZADD", key.owned .. task.owner, at, id) end
  redis.call("ZADD", key.state .. to, at, id)
  enter_listing(task, to, now)
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
    set(move, "h" .. task.entries, task.entry)
  end
  set(move, "entries", task.entries)
end

local function write_fields(move)
  redis.call("HSET", key.task .. move.task.id, unpack(move.fields))
  if #move.delete > 0 then redis.call("HDEL", key.task .. move.task.id, unpack(move.delete)) end
end

local settle -- tells those that wait for a task that it ended; see the part `dependents`

-- Writes the move, or returns the error that forbids it and writes nothing.
local function commit(move, now, options)
  local task, to = move.task, move.state
  local moved = task.state ~= to
  local problem = check_type(key.history, "stream") or moved and check_owner_type(task)
    or task.state and check_place_types(task, task.state, task.parked_at)
    or check_place_types(task, to, options.parked, options.unmet)
    or to == State.PENDING and check_entrance_types(task.queue)
  if problem then return problem end
  local at = string.format("%.0f", now) -- once: Redis takes longer to do so, for each argument
  if task.state and moved then leave(task, to, options) end
  record(move)
  -- What was noted in an earlier stay in the queue.
  if task.state and to == State.PENDING then move.delete[#move.delete + 1] = "unticketed_at" end
  if options.parked then
    set(move, "parked_at", at)
  elseif task.parked_at then
    move.delete[#move.delete + 1] = "parked_at"
  end
  if moved then
    set(move, "state", to)
    set(move, "entered_at", at)
    set(move, "reason", move.steps[#move.steps].reason)
  end
  write_fields(move)
  if moved then enter(task, to, now, at, options) end
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
