-- Gives parked tasks of some types back to their queues, where stock rq workers find them.
-- The youngest first, each to the head of its list, so that repeated calls keep the order.
-- uses batch
--
-- ARGV[1] tasks given back, at most   ARGV[2..n] task types
-- returns number that was parked, number moved, then what was wrong with the others
-- appends nothing

local limit = tonumber(ARGV[1])
local types = {}
for index = 2, #ARGV do types[index - 1] = ARGV[index] end

local function is_younger(one, other)
  if one.score ~= other.score then return one.score > other.score end
  return one.id > other.id
end

-- The youngest parked tasks of a queue, and how many there are. The types are looked for one by one, since an entry
-- of `parked_types` can be lost.
local function youngest_parked(queue, most)
  local found, number = {}, 0
  for _, task_type in ipairs(types) do
    local place = parking_place(queue, task_type)
    local members = redis.call("ZREVRANGEBYSCORE", place, "+inf", "-inf", "WITHSCORES", "LIMIT", 0, most)
    for index = 1, #members, 2 do
      found[#found + 1] = {id = members[index], type = task_type, score = tonumber(members[index + 1])}
    end
    number = number + redis.call("ZCARD", place)
  end
  table.sort(found, is_younger)
  return found, number
end

-- Returns "moved", "dropped" or what was wrong.
local function give_back(queue, parked)
  local task, problem = read_task(parked.id)
  if problem then return set_aside(parking_place(queue, parked.type), parked.id, problem) end
  leave_parking(queue, parked.type, parked.id)
  if task.state ~= State.PENDING or task.queue ~= queue or task.type ~= parked.type then return "dropped" end
  redis.call("HDEL", key.task .. task.id, "parked_at", "unticketed_at")
  push_ticket(task, true)
  redis.call("ZADD", key.pending .. queue, task.entered_at, task.id)
  return "moved"
end

local function check_places(queue)
  local problem = check_queue_types(queue) or check_entrance_types(queue)
  for _, task_type in ipairs(types) do problem = problem or check_parking_types(queue, task_type) end
  return problem
end

local problem = check_type(key.queues, "hash")
if problem then return problem end
local number, moved, problems = 0, 0, problems_of_quarantine()

local function give_back_in(queue)
  local found, parked = youngest_parked(queue, limit - moved)
  number = number + parked
  for index = 1, math.min(#found, limit - moved) do
    local answer = give_back(queue, found[index])
    if answer == "moved" then moved = moved + 1 elseif answer ~= "dropped" then problems[#problems + 1] = answer end
  end
end

for _, queue in ipairs(redis.call("HKEYS", key.queues)) do
  -- One damaged queue must not keep the others from getting theirs back.
  local damage = check_places(queue)
  if damage then problems[#problems + 1] = damage.err else give_back_in(queue) end
end
return {number, moved, unpack(problems)}
