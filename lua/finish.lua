-- Ends attempts as their worker reports it, each for itself, and in the same call claims what the worker runs next.
-- uses attempt, claim_next
--
-- KEYS[1..n] hash task:{id} of each attempt; then list rq:queue:{queue}, each one to claim from, none when the worker
--         wants no further task
-- ARGV[1] number of attempts   ARGV[2] actor
-- ARGV[3] worker id   ARGV[4] token of the next claim, hex   ARGV[5] lease, ms
-- ARGV[6] task types that the worker serves, ",a,b,"
-- ARGV[7] ms that the worker may take beyond a deadline to end an attempt itself
-- ARGV[8] types of which it takes several at once, and how many, ",a=2,b=9,"; "" for none
-- ARGV[9..n] for each attempt its number and token; COMPLETE, FAIL, TIMEOUT, STOPPED or SUSPEND; reason; message for
--         the history; result (JSON) for COMPLETE, else error text or ""; "1" when a retry makes sense; delay the
--         handler asked for (ms); random number in [0, 1) for the jitter
-- returns for each attempt the answer (moved | already | refused | stale | missing, with id, state, attempt, entry) or
--         what is wrong, then the answer of claim, or nothing; nothing is claimed beside an end that cannot be written
-- appends the event; RETRY, GIVE_UP or PAUSE where the budgets and a pause say so;
--         RESUME after a shutdown or an unknown type; RELEASE or CANCEL of tasks that waited for this one

local number_of_attempts, actor = tonumber(ARGV[1]), ARGV[2]
local worker_id, next_token, lease, types = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local patience, together = ARGV[7], ARGV[8]

-- Whatever else the table allows is not for a worker to say at the end of an attempt.
local ENDS_ATTEMPT = {
  [Event.COMPLETE] = true, [Event.FAIL] = true, [Event.TIMEOUT] = true, [Event.STOPPED] = true, [Event.SUSPEND] = true,
}

local function end_attempt(task, ending, now)
  local move = new_move(task)
  local options, event = {}, ending.event
  if event == Event.FAIL or event == Event.TIMEOUT then
    options.due_at = end_badly(move, ending, now)
  else
    add_step(move, event, actor, ending.reason, ending.message)
    -- Suspended without a pause asked for (a shutdown, or a pause withdrawn): back to the head of its queue.
    if event == Event.SUSPEND and task.state == State.PROCESSING then
      add_step(move, Event.RESUME, actor, ending.reason, "")
      -- A worker that does not know the type would get it again and again: it waits for one that does.
      options.parked = ending.reason == Reason.UNKNOWN_TYPE
      options.at_front = true
    end
  end
  move.delete = {"worker_id", "timeout_at", "lease", "patience", "second_look_at", "batched"}
  return commit(move, now, options)
end

local function keep_text(task, ending)
  local id, text = task.id, ending.text
  if task.state == State.SUCCESS then
    redis.call("DEL", key.error .. id, key.checkpoint .. id)
    redis.call("SET", key.result .. id, text)
  elseif text ~= "" and ending.event ~= Event.COMPLETE then
    redis.call("SET", key.error .. id, text)
  end
  if task.state == State.CANCELLED then redis.call("DEL", key.checkpoint .. id) end
end

local function finish(id, ending, now)
  local task, problem = read_task(id)
  if not task then return problem end
  local refusal = refuse_stranger(task, ending.attempt, ending.token)
  if refusal then return refusal end
  local word = ENDS_ATTEMPT[ending.event] and verdict(task.state, ending.event) or "refused"
  if word ~= "moved" then return reply(word, task) end
  problem = end_attempt(task, ending, now)
  if problem then return problem end
  keep_text(task, ending)
  return reply("moved", task)
end

local now = clock()
local ids, queues = {}, {}
for index, name in ipairs(KEYS) do
  if index <= number_of_attempts then
    ids[index] = string.sub(name, #key.task + 1)
  else
    queues[#queues + 1] = string.sub(name, #key.rq_queue + 1)
  end
end
local answers, is_refused = {}, false
for first = 9, #ARGV, 9 do
  local attempt, token, event, reason, message, text, retryable, asked, fraction = unpack(ARGV, first, first + 8)
  answers[#answers + 1] = finish(ids[#answers + 1], {
    attempt = attempt, token = token, event = event, actor = actor, reason = reason, message = message, text = text,
    retryable = retryable == "1", asked = tonumber(asked), fraction = tonumber(fraction),
  }, now)
  is_refused = is_refused or answers[#answers].err
end
-- Whoever has an end that cannot be written may have to keep it, and takes nothing new meanwhile.
if #queues > 0 and not is_refused then
  answers[#answers + 1] = claim_next(queues, {
    worker_id = worker_id, token = next_token, lease = lease, patience = patience, types = types, together = together,
  }, now)
end
return answers
