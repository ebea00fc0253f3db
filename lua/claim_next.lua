-- Takes the next task of the first queue that has one. Used by `claim` and, fused, by `finish`.

local CLAIM_TTL = "60000" -- ms that a repeated claim is recognised
local LOOK_AT_MOST = 50 -- tickets passed over in one call: of ended tasks, and of types that the worker does not serve
local BYTES_TOGETHER = 65536 -- of the params of tasks that are started together

-- A value that cannot be read is answered as an error in its place: the task is started by then.
local function value_of(name)
  local value, damage = fetch("string", "GET", name)
  return damage or value
end

-- What the tasks of these ids returned, nothing for one that is gone; or how many bytes that is when it is too much.
local function results_of(ids)
  local names, size = {}, 0
  for index, id in ipairs(ids) do
    names[index] = key.result .. id
    local length = redis.pcall("STRLEN", names[index])
    size = size + (type(length) == "number" and length or 0)
  end
  return size > RESULTS_LIMIT and size or redis.call("MGET", unpack(names))
end

-- The params as the handler gets them; none, or those of everybody's eyes, would be wrong ones.
local function params_of(task)
  local name = (task.secrets and key.secrets or key.params) .. task.id
  return value_of(name) or damaged(name, "string", "none")
end

local function claimed(task)
  local answer = {
    "claimed", redis.call("HGETALL", key.task .. task.id), task.id,
    task.params or params_of(task), value_of(key.checkpoint .. task.id),
  }
  if task.dependencies then
    local ids, damage = dependencies_of(task)
    answer[6], answer[7] = ids or damage, ids and results_of(ids) or {}
  end
  return answer
end

-- One task as it is, several as a batch.
local function answer_of(claims)
  return #claims > 1 and {"batch", unpack(claims)} or claims[1]
end

-- What this token already got, when the first reply was lost. The lease of a task begins anew. What is no text tells
-- of no claim, as if it were gone: the next one is written in its place.
local function repeated(claim)
  local last = redis.pcall("GET", key.claim .. claim.worker_id)
  local what = type(last) == "string" and string.match(last, "^" .. claim.token .. " (.+)$")
  if not what then return end
  local queue, job = string.match(what, "^(.+) plain (.+)$")
  if queue then return {"plain", queue, job} end
  local held = {}
  for id in string.gmatch(what, "[^,]+") do
    local task = read_task(id)
    if task and task.token == claim.token and RUNNING[task.state] then
      renew_lease(task, claim.lease)
      held[#held + 1] = claimed(task)
    end
  end
  return answer_of(held)
end

local function remember(claim, what)
  redis.call("SET", key.claim .. claim.worker_id, claim.token .. " " .. what, "PX", CLAIM_TTL)
end

-- `claim`: worker_id, token, lease (ms), patience (ms), types (",a,b,"), ticket_taken (somebody else popped the
-- ticket), tasks_only, together (of which types it takes how many at once, ",a=2,b=9,"), passed (plain rq jobs at the
-- head of the queue that it leaves to others)
local function begin(task, claim, now, is_batched)
  local move = new_move(task)
  task.attempt = task.attempt + 1
  task.worker_id = claim.worker_id
  add_step(move, Event.START, "worker:" .. claim.worker_id, Reason.POLICY)
  move.fields = {
    "attempt", task.attempt, "token", claim.token, "worker_id", claim.worker_id,
    "started_at", now, "timeout_at", now + term(task, "timeout"),
    "lease", claim.lease, "patience", claim.patience, -- by which others judge this worker; theirs may be shorter
  }
  if is_batched then set(move, "batched", 1) end -- it may not have begun when its worker is lost
  if task.attempt > 1 then move.delete = {"progress", "progress_at", "message", "batched"} end
  return commit(move, now, {lease = claim.lease, ticket_taken = claim.ticket_taken})
end

-- Starts the attempts of tasks that the worker runs one after the other. One that cannot be started stays where it is,
-- and so do those behind it.
local function start(tasks, claim, now)
  local ids, started = {}, {}
  for number, task in ipairs(tasks) do
    local problem = begin(task, claim, now, #tasks > 1)
    if problem and number == 1 then return problem end
    if problem then break end
    ids[number], started[number] = task.id, claimed(task)
  end
  remember(claim, table.concat(ids, ","))
  return answer_of(started)
end

-- Names hold no comma, so the types of a claim are one text and no name is found inside of another.
local function serves(claim, task_type)
  return string.find(claim.types, "," .. task_type .. ",", 1, true)
end

-- The parked task of a queue that waited longest, of the types that the claim serves: {id, type}, nil or an error.
local function oldest_parked(queue, claim)
  local oldest, since
  local types, damage = fetch("set", "SMEMBERS", key.parked_types .. queue)
  if damage then return damage end
  for _, task_type in ipairs(types) do
    local place = parking_place(queue, task_type)
    local first = {}
    if serves(claim, task_type) then first, damage = fetch("zset", "ZRANGE", place, 0, 0, "WITHSCORES") end
    if damage then return damage end
    if first[1] and (not since or tonumber(first[2]) < since) then
      oldest, since = {id = first[1], type = task_type}, tonumber(first[2])
    end
  end
  return oldest
end

-- The index is a hint: a member that is not parked here is removed, one without a readable task put in quarantine.
local function take_parked(queue, parked, claim, now)
  local task, problem = read_task(parked.id)
  if task and task.state == State.PENDING and task.queue == queue and task.type == parked.type then
    return start({task}, claim, now)
  end
  leave_parking(queue, parked.type, parked.id)
  if problem then quarantine(parking_place(queue, parked.type), parked.id, problem) end
end

-- The first task of a queue is of a type that the worker does not serve: it must hold nobody behind it.
local function park_head(list, task, now)
  local queue = task.queue
  local problem = check_queue_types(queue) or check_parking_types(queue, task.type) or check_entrance_types(queue)
  if problem then return problem end
  redis.call("LREM", list, 1, task.id)
  redis.call("ZREM", key.pending .. task.queue, task.id)
  redis.call("HSET", key.task .. task.id, "parked_at", now)
  park(task, task.entered_at)
end

local function drop_ticket(queue, id)
  redis.call("LREM", key.rq_queue .. queue, 1, id)
  redis.call("DEL", key.rq_job .. id)
end

-- Hints for who serves what is parked here stay, and those for who runs the plain jobs that were passed over.
local function drop_hints(queue, claim)
  if claim.passed == 0 and redis.call("EXISTS", key.parked_types .. queue) == 0 then
    redis.call("DEL", key.wake .. queue)
  end
end

-- How many tasks of a type the worker takes at once.
local function most_of(task_type, claim)
  local _, last = string.find(claim.together, "," .. task_type .. "=", 1, true)
  return last and tonumber(string.match(claim.together, "^%d+", last + 1)) or 1
end

-- Whether a task may be one of several: a first attempt with nothing about it that needs a second look, which may be
-- repeated when its worker is lost.
local function is_plain(task)
  return task.state == State.PENDING and task.attempt == 0 and term(task, "max_losses") > 0
    and not (task.parked_at or task.dependencies or task.secrets)
end

-- The first task of a queue, and those right behind it that its worker takes with it.
local function with_followers(first, list, claim)
  local tasks, seen, size = {first}, {[first.id] = true}, 0
  local most = claim.passed == 0 and most_of(first.type, claim) or 1
  if most == 1 or not is_plain(first) then return tasks end
  for _, id in ipairs(redis.call("LRANGE", list, 1, most - 1)) do
    local task = not seen[id] and read_task(id)
    if not task or task.type ~= first.type or task.queue ~= first.queue or not is_plain(task) then break end
    task.params = value_of(key.params .. id)
    size = size + (type(task.params) == "string" and #task.params or BYTES_TOGETHER + 1)
    if size > BYTES_TOGETHER then break end
    tasks[#tasks + 1], seen[id] = task, true
  end
  return tasks
end

-- One look at the head of a queue, behind the plain jobs that the worker does not run: a reply, or nil to look again,
-- or false when there is nothing.
local function take_head(queue, claim, now)
  local list = key.rq_queue .. queue
  local id, damage = fetch("list", "LINDEX", list, claim.passed)
  if damage then return damage end
  if not id then
    drop_hints(queue, claim)
    return false
  end
  local task, problem = read_task(id)
  if task and task.state == State.PENDING then
    if serves(claim, task.type) then return start(with_followers(task, list, claim), claim, now) end
    return park_head(list, task, now)
  elseif task then
    drop_ticket(queue, id)
  elseif problem.err then
    -- One damaged record must not hold the queue.
    redis.call("LREM", list, 1, id)
    quarantine(list, id, problem)
  elseif redis.call("EXISTS", key.rq_job .. id) == 1 and not is_ticket(id) then
    if claim.tasks_only then
      claim.passed = claim.passed + 1
      return
    end
    damage = check_type(list .. key.rq_intermediate_suffix, "list")
    if damage then return damage end
    redis.call("LMOVE", list, list .. key.rq_intermediate_suffix, "LEFT", "RIGHT")
    remember(claim, queue .. " plain " .. id)
    return {"plain", queue, id}
  else
    drop_ticket(queue, id)
  end
end

-- What is parked came before what is in the list.
local function take_next(queue, claim, now)
  local parked = oldest_parked(queue, claim)
  if not parked then return take_head(queue, claim, now) end
  if parked.err then return parked end
  return take_parked(queue, parked, claim, now)
end

local function claim_from(queue, claim, now)
  local state, damage = fetch("hash", "HGET", key.queues, queue)
  if damage then return damage end
  local looks = state == "paused" and 0 or LOOK_AT_MOST
  claim.passed = 0
  for _ = 1, looks do
    local answer = take_next(queue, claim, now)
    if answer then return answer end
    if answer == false then return end
  end
  if looks > claim.passed then return {"more"} end
end

local function claim_next(queues, claim, now)
  local again = repeated(claim)
  if again then return again end
  if redis.call("EXISTS", key.rq_suspended) == 1 then return {"suspended"} end
  local damage
  for _, queue in ipairs(queues) do
    local answer = claim_from(queue, claim, now)
    -- One damaged queue must not keep the worker from the others.
    if answer and answer.err then damage = answer elseif answer then return answer end
  end
  return damage or {"empty"}
end
