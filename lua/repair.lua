-- Compares tasks with all that must hold around them, and puts right from their hashes what is wrong.
-- uses batch, look, hand_over, tickets, awaited, places, invariants, replay
--
-- KEYS[1..n] zset  further indices in which the ids were seen, beside those that their tasks name
-- ARGV[1] actor   ARGV[2] "1" to put right, else only to tell  ARGV[3] lease, ms
-- ARGV[4] ms that a task must be without a ticket before it gets a new one
-- ARGV[5] queue whose list of tickets is searched however long it is, or "" for none
-- ARGV[6] entries of histories that are replayed, at most, and those of one more task; "" for no replay
-- ARGV[7..n] task ids
-- returns number of ids looked at (not all where histories were long or dependencies many), number of tasks put right,
--   then for each finding the id, the rule, what is wrong, and what becomes of it: repaired, repairable, later,
--   listed, unlisted, removed, remains, kept
-- appends REPAIR

local actor, mends, lease, hand_over, queue = ARGV[1], ARGV[2] == "1", tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local entries_left = tonumber(ARGV[6])
local ids, indices = {}, {}
for index = 7, #ARGV do ids[#ids + 1] = ARGV[index] end
for index, name in ipairs(KEYS) do indices[index] = name end

local problem = check_type(key.history, "stream") or check_type(key.queues, "hash")
if problem then return problem end
local terms = new_terms(clock(), lease, hand_over, queue, indices)
local answer = {0, 0}

local function report(id, rule, text, outcome)
  for _, value in ipairs({id, rule, text, outcome}) do answer[#answer + 1] = value end
end

local function outcome_of(finding)
  if finding.later then return "later" end
  if is_of_listing(finding) then return mends and "listed" or "unlisted" end
  if finding.frees or finding.adds then return mends and "repaired" or "repairable" end
  return "kept"
end

local function look_at_remains(id)
  local look = examine_remains(id, terms)
  for _, finding in ipairs(look.found) do report(id, finding.rule, finding.text, mends and "removed" or "remains") end
  if mends and mend(look, actor) > 0 then answer[2] = answer[2] + 1 end
end

local function look_at(task)
  local look = examine(task, terms)
  if entries_left then
    entries_left = entries_left - task.entries
    replay(task, function(rule, text) tell(look, rule, text) end)
  end
  for _, finding in ipairs(look.found) do report(finding.whose, finding.rule, finding.text, outcome_of(finding)) end
  if mends and mend(look, actor) > 0 then answer[2] = answer[2] + 1 end
end

for _, id in ipairs(ids) do
  local task, damage = read_task(id)
  if task then
    look_at(task)
  elseif damage.err then
    report(id, "a", damage.err, "kept")
  else
    look_at_remains(id)
  end
  answer[1] = answer[1] + 1
  if entries_left and entries_left <= 0 or terms.dependencies_left <= 0 then break end
end
return answer
