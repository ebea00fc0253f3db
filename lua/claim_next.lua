-- Takes the next task of the first queue that has one. Used by `claim` and, fused, by `finish`.

local CLAIM_TTL = 60000 -- ms that a repeated claim is recognised
local LOOK_AT_MOST = 100 -- tickets of ended tasks skipped in one call

-- A value that cannot be read is answered as an error in its place: the task is started by then.
local function value_of(name)
  local value = redis.pcall("GET", name)
  if value and value.err then return damaged(name, "string", redis.call("TYPE", name).ok) end
  return value
end

local function claimed(task)
  return {
    "claimed", redis.call("HGETALL", key.task .. task.id), task.id,
    value_of(key.params .. task.id), value_of(key.checkpoint .. task.id),
  }
end

-- What this token already got, when the first reply was lost. The lease of a task begins anew.
local function repeated(claim)
  local last = redis.call("GET", key.claim .. claim.worker_id)
  local what = last and string.match(last, "^" .. claim.token .. " (.+)$")
  if not what then return end
  local queue, job = string.match(what, "^(.+) plain (.+)$")
  if queue then return {"plain", queue, job} end
  local task = read_task(what)
  if task and task.token == claim.token and RUNNING[task.state] then
    renew_lease(task, claim.lease)
    return claimed(task)
  end
end

local function remember(claim, what)
  redis.call("SET", key.claim .. claim.worker_id, claim.token .. " " .. what, "PX", CLAIM_TTL)
end

-- `claim`: worker_id, token, lease (ms), patience (ms), ticket_taken (somebody else popped the ticket)
local function start(task, claim, now)
  local move = new_move(task)
  task.attempt = task.attempt + 1
  task.worker_id = claim.worker_id
  add_step(move, Event.START, "worker:" .. claim.worker_id, Reason.POLICY)
  move.set.attempt = task.attempt
  move.set.token = claim.token
  move.set.worker_id = claim.worker_id
  move.set.started_at = now
  move.set.timeout_at = now + task.policy.timeout
  -- By which others judge this worker; theirs may be shorter.
  move.set.lease = claim.lease
  move.set.patience = claim.patience
  move.delete = {"progress", "progress_at", "message"}
  local problem = commit(move, now, {lease = claim.lease, ticket_taken = claim.ticket_taken})
  if problem then return problem end
  remember(claim, task.id)
  return claimed(task)
end

local function drop_ticket(queue, id)
  redis.call("LPOP", key.rq_queue .. queue)
  redis.call("DEL", key.rq_job .. id)
end

-- One look at the head of a queue: a reply, or nil to look again, or false when the queue is empty.
local function take_head(queue, claim, now)
  local list = key.rq_queue .. queue
  local id = redis.call("LINDEX", list, 0)
  if not id then
    redis.call("DEL", key.wake .. queue)
    return false
  end
  local task, problem = read_task(id)
  if task and task.state == State.PENDING then return start(task, claim, now) end
  if task then
    drop_ticket(queue, id)
  elseif problem.err then
    -- One damaged record must not hold the queue.
    redis.call("LPOP", list)
    redis.call("HSET", key.quarantine, list .. " " .. id, problem.err)
  elseif redis.call("EXISTS", key.rq_job .. id) == 1 then
    redis.call("LMOVE", list, list .. key.rq_intermediate_suffix, "LEFT", "RIGHT")
    remember(claim, queue .. " plain " .. id)
    return {"plain", queue, id}
  else
    redis.call("LPOP", list)
  end
end

local function claim_from(queue, claim, now)
  local list = key.rq_queue .. queue
  local problem = check_types({{list, "list"}, {list .. key.rq_intermediate_suffix, "list"}})
  if problem then return problem end
  local looks = redis.call("HGET", key.queues, queue) == "paused" and 0 or LOOK_AT_MOST
  for _ = 1, looks do
    local answer = take_head(queue, claim, now)
    if answer then return answer end
    if answer == false then break end
  end
end

local function claim_next(queues, claim)
  local damage = check_types(
    {{key.claim .. claim.worker_id, "string"}, {key.queues, "hash"}, {key.quarantine, "hash"}}
  )
  if damage then return damage end
  local again = repeated(claim)
  if again then return again end
  if redis.call("EXISTS", key.rq_suspended) == 1 then return {"suspended"} end
  local now = clock()
  for _, queue in ipairs(queues) do
    local answer = claim_from(queue, claim, now)
    -- One damaged queue must not keep the worker from the others.
    if answer and answer.err then damage = answer elseif answer then return answer end
  end
  return damage or {"empty"}
end
