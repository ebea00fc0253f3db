-- Ends an attempt as its worker reports it and, in the same call, claims the worker's next task.
-- uses attempt, claim_next
--
-- KEYS[1] hash    task:{id}
-- KEYS[2..n] list rq:queue:{queue} to claim from; none when the worker wants no further task
-- ARGV[1] attempt     ARGV[2] its token       ARGV[3] COMPLETE, FAIL, TIMEOUT, STOPPED or SUSPEND
-- ARGV[4] actor       ARGV[5] reason          ARGV[6] message for the history
-- ARGV[7] result, JSON, for COMPLETE; error text for the others, or ""
-- ARGV[8] "1" when a retry makes sense        ARGV[9] delay the handler asked for, ms
-- ARGV[10] random number in [0, 1) for the jitter
-- ARGV[11] worker id  ARGV[12] token of the next claim, hex  ARGV[13] lease, ms
-- ARGV[14] task types that the worker serves, ",a,b,"
-- ARGV[15] ms that the worker may take beyond a deadline to end an attempt itself
-- returns the answer (moved | already | refused | stale | missing, with id, state, attempt, entry),
--         then the answer of claim, or nothing
-- appends the event; RETRY, GIVE_UP or PAUSE where the budgets and a pause say so;
--         RESUME after a shutdown or an unknown type; RELEASE or CANCEL of tasks that waited for this one

local id = string.sub(KEYS[1], #key.task + 1)
local attempt, token, event = ARGV[1], ARGV[2], ARGV[3]
local actor, reason, message, text = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local retryable, asked, fraction = ARGV[8] == "1", tonumber(ARGV[9]), tonumber(ARGV[10])
local worker_id, next_token, lease, types = ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local patience = ARGV[15]

-- Whatever else the table allows is not for a worker to say at the end of an attempt.
local ENDS_ATTEMPT = {
  [Event.COMPLETE] = true, [Event.FAIL] = true, [Event.TIMEOUT] = true, [Event.STOPPED] = true, [Event.SUSPEND] = true,
}

local function end_attempt(task, now)
  local move = new_move(task)
  local options = {}
  if event == Event.FAIL or event == Event.TIMEOUT then
    options.due_at = end_badly(move, {
      event = event, actor = actor, reason = reason, message = message,
      retryable = retryable, asked = asked, fraction = fraction,
    }, now)
  else
    add_step(move, event, actor, reason, message)
    -- Suspended without a pause asked for (a shutdown, or a pause withdrawn): back to the head of its queue.
    if event == Event.SUSPEND and task.state == State.PROCESSING then
      add_step(move, Event.RESUME, actor, reason, "")
      -- A worker that does not know the type would get it again and again: it waits for one that does.
      options.parked = reason == Reason.UNKNOWN_TYPE
      options.at_front = true
    end
  end
  move.delete = {"worker_id", "timeout_at", "lease", "patience", "second_look_at"}
  return commit(move, now, options)
end

local function keep_text(task)
  if task.state == State.SUCCESS then
    redis.call("DEL", key.error .. id, key.checkpoint .. id)
    redis.call("SET", key.result .. id, text)
  elseif text ~= "" and event ~= Event.COMPLETE then
    redis.call("SET", key.error .. id, text)
  end
  if task.state == State.CANCELLED then redis.call("DEL", key.checkpoint .. id) end
end

local function finish(now)
  local task, problem = read_task(id)
  if not task then return problem end
  local refusal = refuse_stranger(task, attempt, token)
  if refusal then return refusal end
  local word = ENDS_ATTEMPT[event] and verdict(task.state, event) or "refused"
  if word ~= "moved" then return reply(word, task) end
  problem = end_attempt(task, now)
  if problem then return problem end
  keep_text(task)
  return reply("moved", task)
end

local now = clock()
local answer = finish(now)
if answer.err or #KEYS == 1 then return answer.err and answer or {answer} end
local queues = {}
for index = 2, #KEYS do queues[index - 1] = string.sub(KEYS[index], #key.rq_queue + 1) end
local next_claim = {worker_id = worker_id, token = next_token, lease = lease, patience = patience, types = types}
return {answer, claim_next(queues, next_claim, now)}
