-- One step of the watchdogs' audit: goes over the stored tasks, some keys at a time, and puts right what is wrong
-- around them. It goes by the tasks themselves, since an index that lost an entry cannot tell of it.
-- Most of them are over, and stand where they must: a glance tells so. A closer look at these has its turn in one round
-- of several.
-- uses batch, look, hand_over, tickets, awaited, places, invariants, glance, walk
--
-- ARGV[1] actor   ARGV[2] pattern of the names of tasks   ARGV[3] lease, ms
-- ARGV[4] ms that a task must be without a ticket before it gets a new one
-- ARGV[5] pause between two sweeps, ms   ARGV[6] ms that a round takes at least, when there are many keys
-- ARGV[7] share of Redis' time that the audit takes at most: one part in so many
-- ARGV[8] keys for each of which, begun or whole, there is a round in the turn of closer looks
-- returns 1 when the next step is due at once or else 0, number put right, then what was wrong
-- appends REPAIR

local actor, pattern, lease, hand_over = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local sweep, round, share, keys_a_turn = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

local CLOSE = 6 -- a closer look takes as long as so many glances
local SPENT = 150 -- so many glances are a step: about a millisecond

local problem = check_type(key.patrol, "hash") or check_type(key.history, "stream") or check_type(key.queues, "hash")
if problem then return problem end
local now, moved, answer = clock(), 0, {0, 0}
local step = next_step(key.patrol, now, {sweep = sweep, round = round, share = share, lease = lease})
if not step then return answer end
local terms = new_terms(now, lease, hand_over, "", {})
local turns -- rounds in which each task has its own

-- Returns what that took, in glances.
local function look_at(name)
  local seen = glance(name)
  if seen and (seen.entered_at + step.round) % turns ~= 0 and is_sound(seen, terms) then return 1 end
  local task, damage = read_task(string.sub(name, #key.task + 1))
  if task and put_in_order(task, terms, actor, answer) then
    moved = moved + 1
  elseif damage and damage.err then
    answer[#answer + 1] = damage.err
  end
  return CLOSE
end

-- A whole round that had to enter nobody tells that each task has its entry in the listings by queue and type, also
-- those that a version without them stored. Whoever lacks it from then on has lost it.
local function conclude_listed()
  if terms.all_listed then return end
  if terms.were_unlisted then redis.call("HSET", key.patrol, "unlisted", step.round) end
  if step.is_last and tonumber(redis.call("HGET", key.patrol, "unlisted") or "") ~= step.round then
    redis.pcall("HSET", key.limits, key.listed_since, now)
  end
end

local spent, names, first = 0, turn_page(step, "MATCH", pattern)
turns = math.ceil(step.keys / keys_a_turn)
for index = first, #names do
  spent = spent + look_at(names[index])
  if index < #names and (spent >= SPENT or terms.dependencies_left <= 0) then
    stay(step, names[index + 1])
    break
  end
end
conclude_listed()
answer[1], answer[2] = end_step(step), moved
return answer
