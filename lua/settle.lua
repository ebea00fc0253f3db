-- Tells those that wait for tasks that ended, where the ending script could not tell all of them: of one that many wait
-- for, along a deep chain, or when one was damaged.
-- uses batch
--
-- ARGV[1] ended tasks looked at, at most
-- returns number of dependents looked at, one that leaves many counting for more, number told, then what was wrong
-- appends RELEASE or CANCEL

local limit = tonumber(ARGV[1])

local now, problems = clock(), {}
problems[1] = make_room(key.settling, "zset")

-- Who cannot be told now is looked at again with all BLOCKED tasks.
local function put_aside(index, id, damage)
  problems[#problems + 1] = set_aside(index, id, damage)
end

local swept = each_due(key.settling, now, limit, FINAL, function(task)
  settle(task, now, put_aside)
  return "kept"
end)
for index = 3, #swept do problems[#problems + 1] = swept[index] end
return {spent, told, unpack(problems)}
