-- One step of the watchdogs' audit: goes over the stored tasks, a few keys at a time, and puts right what is wrong
-- around them. It goes by the tasks themselves, since an index that lost an entry cannot tell of it.
-- uses batch, look, hand_over, tickets, awaited, invariants
--
-- ARGV[1] actor   ARGV[2] keys looked at, about   ARGV[3] lease, ms
-- ARGV[4] ms that a task must be without a ticket before it gets a new one
-- ARGV[5] shortest pause between two steps of all watchdogs, ms   ARGV[6] pattern of the names of tasks
-- returns number put right, number put right, then what was wrong
-- appends REPAIR

local actor, count, lease, hand_over = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local pause, pattern = tonumber(ARGV[5]), ARGV[6]

local problem = check_type(key.patrol, "hash") or check_type(key.history, "stream") or check_type(key.queues, "hash")
if problem then return problem end
local now, moved, answer = clock(), 0, {0, 0}

local function note(...)
  redis.call("PEXPIRE", key.patrol, 4 * lease) -- needs no memory, and lets the writes after it pass at a full Redis
  redis.call("HSET", key.patrol, ...)
  redis.call("PEXPIRE", key.patrol, 4 * lease)
end

-- Returns the names of the next few tasks, how many of them were looked at before and the cursor that led to them, or
-- nothing when another watchdog was here just now.
local function next_tasks()
  local trace = redis.call("HMGET", key.patrol, "at", "cursor", "passed")
  local at = tonumber(trace[1] or 0) or 0
  if at <= now and now - at < pause then return {} end
  local cursor = whole(trace[2] or "") and trace[2] or "0"
  local page = redis.call("SCAN", cursor, "MATCH", pattern, "COUNT", count)
  note("at", now, "cursor", page[1], "passed", 0)
  return page[2], whole(trace[3] or "") or 0, cursor
end

local function look_at(task, terms)
  local look = examine(task, terms)
  for _, finding in ipairs(look.found) do
    if not (finding.later or finding.lists) then answer[#answer + 1] = key.task .. task.id .. ": " .. finding.text end
  end
  if mend(look, actor) > 0 then moved = moved + 1 end
end

local terms = new_terms(now, lease, hand_over, "", {})
local names, passed, cursor = next_tasks()
for index = (passed or 0) + 1, #names do
  local task, damage = read_task(string.sub(names[index], #key.task + 1))
  if task then look_at(task, terms) elseif damage.err then answer[#answer + 1] = damage.err end
  if terms.dependencies_left <= 0 and index < #names then
    note("cursor", cursor, "passed", index) -- the next step goes on with the same page
    break
  end
end
answer[1], answer[2] = moved, moved
return answer
