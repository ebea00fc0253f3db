-- Accepts a task: writes it, its params, its place and its first history entry in one step.
-- One that depends on a task that ended badly is accepted and cancelled at once, so that its history says why.
--
-- KEYS[1] hash    task:{id}
-- ARGV[1] type    ARGV[2] queue   ARGV[3] owner, or ""
-- ARGV[4] packed policy           ARGV[5] params, JSON       ARGV[6] metadata, JSON, or ""
-- ARGV[7] fingerprint of what was asked for, to tell a repeated submit from another one
-- ARGV[8] delay, ms, or 0         ARGV[9] run at, ms since 1970, or 0
-- ARGV[10] idempotency key, or "" ARGV[11] its life, ms      ARGV[12] random id for a new database
-- ARGV[13] actor                  ARGV[14] reason            ARGV[15] the policy's clocks, packed, or ""
-- ARGV[16] ids of the tasks it depends on, JSON list, or ""
-- ARGV[17] URL to which each of its ends is told, or ""
-- ARGV[18] 1 when it may know of its owner's tasks only, else 0
-- ARGV[19] the params with their secrets, JSON, or "" when there are none: ARGV[5] are those that anybody may see
-- returns moved | already | conflict | purged, with id, state, attempt, entry
--       | unknown, with id, and the dependencies that its owner does not know, separated by blanks
--       | unserved, with id: its ends are to be told, and no listener does that
-- appends SUBMIT, and CANCEL

local id = string.sub(KEYS[1], #key.task + 1)
local task_type, queue, owner, policy = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local params, metadata, fingerprint = ARGV[5], ARGV[6], ARGV[7]
local delay, run_at = tonumber(ARGV[8]), tonumber(ARGV[9])
local idempotency_key, idempotency_life, epoch = ARGV[10], ARGV[11], ARGV[12]
local actor, reason = ARGV[13], ARGV[14]
local clocks = ARGV[15] ~= "" and ARGV[15] or nil
local depends_on, callback, confined, secrets = ARGV[16], ARGV[17], ARGV[18] == "1", ARGV[19]

-- Returns the answer for an id that is taken; nothing for a free one.
local function answer_taken(taken)
  if redis.call("EXISTS", key.task .. taken, key.tombstone .. taken) == 0 then return end
  local task, problem = read_task(taken)
  if not task then return problem.err and problem or {"purged", "id", taken} end
  local is_foreign = confined and task.owner ~= owner
  local is_same = redis.call("HGET", key.task .. taken, "fingerprint") == fingerprint
  return reply(is_same and not is_foreign and "already" or "conflict", task)
end

-- The task that the idempotency key stands for may be gone without a trace.
local function answer_known_key()
  local earlier, damage = fetch("string", "GET", key.idempotency .. idempotency_key)
  if damage then return damage end
  return earlier and answer_taken(earlier)
end

local answer = answer_taken(id) or idempotency_key ~= "" and answer_known_key()
if answer then return answer end
local problem = check_ledger("submitted")
if problem then return problem end

-- Whether a dependency is none of the owner's business, who is told what his task waits for. One of nobody is shared.
local function is_foreign(dependency)
  local theirs = redis.call("HGET", key.task .. dependency, "owner")
  if confined then return theirs ~= owner end -- a tombstone does not tell whose task it was
  return owner ~= "" and theirs and theirs ~= owner
end

-- What the task is to wait for, by how it stands now: {unmet, unknown, ended_badly (id), its_state}, or an error.
local function look_at_dependencies(ids)
  local found = {unmet = {}, unknown = {}}
  for _, dependency in ipairs(ids) do
    local state, damage = state_of(dependency)
    if damage then return damage end
    if not state or is_foreign(dependency) then
      table.insert(found.unknown, dependency)
    elseif not FINAL[state] then
      table.insert(found.unmet, dependency)
    elseif state ~= State.SUCCESS then
      found.ended_badly, found.its_state = dependency, state
    end
  end
  return found
end

local dependencies = depends_on ~= "" and cjson.decode(depends_on) or {}
local found = look_at_dependencies(dependencies)
if found.err then return found end
if #found.unknown > 0 then return {"unknown", "id", id, "dependencies", table.concat(found.unknown, " ")} end
-- Who waits for a record that was lost is cancelled soon. Until then a new task of this id could wait for him in turn.
if #found.unmet > 0 and redis.call("EXISTS", key.dependents .. id) == 1 then
  return damaged(key.dependents .. id, "nobody who waits for a task that is not there", "some")
end
if callback ~= "" and redis.call("EXISTS", key.callback_listener) == 0 then return {"unserved", "id", id} end

local now = clock()
local due_at = run_at > 0 and run_at or now + delay
local task = {id = id, type = task_type, queue = queue, attempt = 0, entries = 0}
if owner ~= "" then task.owner = owner end
task.policy = policy
if not is_packed(policy .. "," .. (clocks or "0")) then return damaged("argument policy", "numbers", policy) end
local waits = due_at > now
local target = waits and State.SCHEDULED or State.PENDING
if found.ended_badly or #found.unmet > 0 then target = State.BLOCKED end
local move = {task = task, state = target, delete = {}, steps = {
  {event = Event.SUBMIT, from = "", to = target, actor = actor, reason = reason, message = ""},
}}
move.fields = {
  "type", task_type, "queue", queue, "policy", policy, "fingerprint", fingerprint, "submitted_at", now, "attempt", "0",
}
if clocks then set(move, "clocks", clocks) end
if task.owner then set(move, "owner", owner) end
if secrets ~= "" then set(move, "secrets", 1) end
if #dependencies > 0 then set(move, "dependencies", #dependencies) end
if found.ended_badly then
  local message = because(found.ended_badly, found.its_state)
  add_step(move, Event.CANCEL, "dependency:" .. found.ended_badly, Reason.DEPENDENCY, message)
elseif waits then
  set(move, "due_at", due_at)
end
problem = commit(move, now, {due_at = waits and due_at, unmet = found.unmet})
if problem then return problem end

redis.call("SET", key.params .. id, params)
if secrets ~= "" then redis.call("SET", key.secrets .. id, secrets) end
if depends_on ~= "" then redis.call("SET", key.depends_on .. id, depends_on) end
if metadata ~= "" then redis.call("SET", key.metadata .. id, metadata) end
if callback ~= "" then redis.call("SET", key.callback .. id, callback) end
if idempotency_key ~= "" then redis.call("SET", key.idempotency .. idempotency_key, id, "PX", idempotency_life) end
if redis.call("HINCRBY", key.ledger, "submitted", "1") == 1 then redis.call("SET", key.epoch, epoch, "NX") end
return reply("moved", task)
