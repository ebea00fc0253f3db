-- What concerns one attempt: its fence, and what follows when it ends badly.

-- Returns the reply for a writer that does not hold the task, nothing for the one that does.
-- The token stays after a worker ended its attempt, so that a re-sent call is told "already";
-- the watchdog removes it when it takes a task away, so that the loser is told "stale".
local function refuse_stranger(task, attempt, token)
  if task.token ~= token or task.attempt ~= tonumber(attempt) then
    -- Counted beside the tasks, which it must not touch; a ledger that cannot be written to changes no answer.
    redis.pcall("HINCRBY", key.ledger, "stale_writes", 1)
    return reply("stale", task)
  end
  if not RUNNING[task.state] then return reply("already", task) end
end

-- The extension comes first: it needs no memory, and lets the writes after it pass at a full Redis.
local function renew_lease(task, lease)
  if redis.call("PEXPIRE", key.heartbeat .. task.id, lease) == 0 then
    redis.call("SET", key.heartbeat .. task.id, (task.worker_id or "") .. " " .. task.attempt, "PX", lease)
  end
end

local function may_retry(task, event, reason)
  local counter = "failures"
  if LOSSES[reason] then
    counter = "losses"
  elseif event == Event.TIMEOUT then
    counter = "timeouts"
  end
  local used = task[counter]
  return counter, used, used + 1 <= term(task, BUDGETS[counter])
end

-- Full jitter; `fraction` comes from the caller, since Redis seeds its random numbers alike in every script.
local function backoff(task, used, fraction, asked)
  local ceiling = math.min(term(task, "backoff_cap"), term(task, "backoff_base") * 2 ^ math.min(used, 40))
  return asked + math.floor(ceiling * fraction)
end

-- FAIL or TIMEOUT, and what the budgets make of it, in one move. Returns the due time when there is one.
-- `ending`: event, actor, reason, message, retryable, asked (ms), fraction, is_free (it may not have begun)
local function end_badly(move, ending, now)
  local task = move.task
  local counter, used, allowed = may_retry(task, ending.event, ending.reason)
  add_step(move, ending.event, ending.actor, ending.reason, ending.message)
  if move.state == State.CANCELLED then return end
  if not ending.is_free then set(move, counter, used + 1) end
  if move.state == State.PAUSED then return end
  local limit = term(task, BUDGETS[counter])
  if ending.retryable and allowed then
    local delay = backoff(task, used, ending.fraction, ending.asked)
    local message = ending.is_free and "it was one of a batch and may not have begun: a retry that uses no budget"
      or string.format("retry %d of %d", used + 1, limit)
    message = string.format("%s in %.1f s", message, delay / 1000)
    add_step(move, Event.RETRY, BY_POLICY, Reason.POLICY, message)
    if task.state == State.PAUSING then
      add_step(move, Event.PAUSE, BY_POLICY, Reason.POLICY, "the pause that was asked for")
      return
    end
    set(move, "due_at", now + delay)
    return now + delay
  elseif move.state == State.TIMEOUT then
    add_step(move, Event.GIVE_UP, BY_POLICY, Reason.POLICY, counter .. " used up: " .. limit .. " retries allowed")
  end
end

-- Ends a running attempt for its worker, which cannot do so itself or does not. Returns the error that forbids it.
-- `why`: actor, reason, message, asked (ms), fraction
local function take_away(task, why, now)
  local move = new_move(task)
  local due_at = end_badly(move, {
    event = Event.TIMEOUT, actor = why.actor, reason = why.reason, message = why.message,
    retryable = true, asked = why.asked, fraction = why.fraction,
    -- It runs alone the next time, and a loss counts then: who ends its worker cannot go on so with others.
    is_free = LOSSES[why.reason] and redis.call("HEXISTS", key.task .. task.id, "batched") == 1,
  }, now)
  move.delete = {"worker_id", "token", "timeout_at", "lease", "patience", "second_look_at", "batched"}
  local problem = commit(move, now, {due_at = due_at})
  if problem then return problem end
  -- What a dead stock worker left: rq would take it for an abandoned job and list it as failed.
  redis.call("DEL", key.rq_job .. task.id, key.rq_executions .. task.id)
  if task.state == State.CANCELLED then redis.call("DEL", key.checkpoint .. task.id) end
end
