-- One step of the watchdogs' look through the indices: takes out the members that do not belong there, wherever they
-- stand. Those that are no tasks, or damaged ones, are put in quarantine; the damaged are still counted and listed.
-- uses batch, look, hand_over, tickets, awaited, places, invariants, walk
--
-- ARGV[1] actor   ARGV[2] pattern of the names of all keys   ARGV[3] lease, ms
-- ARGV[4] ms that a task must be without a ticket before it gets a new one
-- ARGV[5] pause between two sweeps, ms   ARGV[6] ms that a round takes at least, when there are many keys
-- ARGV[7] share of Redis' time that the look takes at most: one part in so many
-- ARGV[8..n] what the names of indices begin with, up to a colon, or whole names
-- returns 1 when the next step is due at once or else 0, number taken out, then what was wrong
-- appends REPAIR

local actor, pattern, lease, hand_over = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local sweep, round, share = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local beginnings = {}
for index = 8, #ARGV do beginnings[#beginnings + 1] = ARGV[index] end

local LOOKS = 80 -- members looked at in a step, about: less than a millisecond
local CLOSE = 5 -- a task that does not belong there takes as long as so many others
local TAKEN_OUT = 20 -- in a step, at most: Redis may answer all of a short index at once

local problem = check_type(key.prune, "hash") or check_type(key.history, "stream") or check_type(key.queues, "hash")
if problem then return problem end
local now, removed, answer, spent = clock(), 0, {0, 0}, 0
local step = next_step(key.prune, now, {sweep = sweep, round = round, share = share, lease = lease})
if not step then return answer end
local terms = new_terms(now, lease, hand_over, "", {})

local function is_index(name)
  for _, beginning in ipairs(beginnings) do
    local is_family = string.sub(beginning, -1) == ":" and behind(beginning, name)
    if is_family or name == beginning then return true end
  end
  return false
end

-- Whether a task waits for the one whose dependents these are; while the set that tells is gone, it may.
local function waits_behind(task, dependency)
  local unmet = key.unmet .. task.id
  return task.state == State.BLOCKED
    and (redis.pcall("SISMEMBER", unmet, dependency) == 1 or redis.call("EXISTS", unmet) == 0)
end

local function belongs_into(index, task)
  local dependency = behind(key.dependents, index)
  if dependency then return waits_behind(task, dependency) end
  task.due_at = read_due_at(task)
  return not each_place(task, terms, function(name) return name ~= index end)
end

-- Takes out who has no readable record. One that is damaged is told by the audit, and stays where it is counted, and
-- where listings show it as damaged. A purge by a version without listings by queue and type left its entry there.
local function put_away(index, id, damage)
  local is_listing = behind(key.listed, index)
  if damage.err and (is_listing or behind(key.state, index)) then return end
  removed = removed + 1
  if is_listing then take_out(index, id) else answer[#answer + 1] = set_aside(index, id, damage) end
end

local function look_at(index, id)
  local task, damage = read_task(id)
  if damage then put_away(index, id, damage) end
  if damage or belongs_into(index, task) then return 1 end
  removed = removed + 1
  terms.indices = {index}
  put_in_order(task, terms, actor, answer)
  return CLOSE
end

-- Returns the cursor with which to go on, nothing when all was looked at. What was taken out of a page is not in it any
-- more when the next step begins it anew.
local function look_through(index, cursor)
  repeat
    local page = redis.call("ZSCAN", index, cursor, "COUNT", BATCH)
    for position = 1, #page[2], 2 do
      if removed >= TAKEN_OUT or terms.dependencies_left <= 0 then return cursor end
      spent = spent + look_at(index, page[2][position])
    end
    cursor = page[1]
    if cursor == "0" then return end
  until spent >= LOOKS
  return cursor
end

local names, first = turn_page(step, "MATCH", pattern, "TYPE", "zset")
local member = step.member
for position = first, #names do
  local left = is_index(names[position]) and look_through(names[position], member)
  member = "0"
  if left then
    stay(step, names[position], left)
    break
  elseif spent >= LOOKS and position < #names then
    stay(step, names[position + 1])
    break
  end
end
answer[1], answer[2] = end_step(step), removed
return answer
