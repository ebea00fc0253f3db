-- One step of the watchdogs' audit: goes over the stored tasks, a few keys at a time, and puts right what is wrong
-- around them. It goes by the tasks themselves, since an index that lost an entry cannot tell of it.
-- uses batch, look, tickets, awaited, invariants
--
-- ARGV[1] actor   ARGV[2] keys looked at, about   ARGV[3] lease, ms
-- ARGV[4] ms that a task must be without a ticket before it gets a new one
-- ARGV[5] shortest pause between two steps of all watchdogs, ms   ARGV[6] pattern of the names of tasks
-- returns number put right, number put right, then what was wrong
-- appends REPAIR

local actor, count, lease, hand_over = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local pause, pattern = tonumber(ARGV[5]), ARGV[6]

local problem = check_types({
  {key.patrol, "hash"}, {key.history, "stream"}, {key.queues, "hash"}, {key.quarantine, "hash"},
})
if problem then return problem end
local now, moved, answer = clock(), 0, {0, 0}

-- Returns the names of the next few tasks, or nil when another watchdog was here just now.
local function next_tasks()
  local trace = redis.call("HMGET", key.patrol, "at", "cursor")
  local at = tonumber(trace[1] or 0) or 0
  if at <= now and now - at < pause then return end
  local page = redis.call("SCAN", whole(trace[2] or "") and trace[2] or "0", "MATCH", pattern, "COUNT", count)
  redis.call("PEXPIRE", key.patrol, 4 * lease) -- needs no memory, and lets the writes after it pass at a full Redis
  redis.call("HSET", key.patrol, "at", now, "cursor", page[1])
  redis.call("PEXPIRE", key.patrol, 4 * lease)
  return page[2]
end

local function look_at(task, terms)
  local look = examine(task, terms)
  for _, finding in ipairs(look.found) do
    if not finding.later then answer[#answer + 1] = key.task .. task.id .. ": " .. finding.text end
  end
  if mend(look, actor) > 0 then moved = moved + 1 end
end

local terms = {now = now, lease = lease, hand_over = hand_over, queue = "", indices = {}, shared = shared_indices()}
for _, name in ipairs(next_tasks() or {}) do
  local task, damage = read_task(string.sub(name, #key.task + 1))
  if task then look_at(task, terms) elseif damage.err then answer[#answer + 1] = damage.err end
end
answer[1], answer[2] = moved, moved
return answer
