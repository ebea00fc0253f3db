-- Makes new tickets for PENDING tasks whose ticket is gone from rq's list.
-- A task whose ticket is gone becomes the oldest of its queue, and the oldest tickets are at the head of the
-- list: comparing both ends finds most of them without walking a long queue. Plain rq jobs share the list, so for
-- a task not found at the head of a long one the whole list is searched, for few of them and seldom.
-- A stock rq worker pops a ticket some time before it starts the task, so a task must be without one for a while.
-- Parked tasks have no ticket and are not in the queue's index; only which types are parked is put right here.
-- uses batch, hand_over
--
-- KEYS[1] list    rq:queue:{queue}
-- ARGV[1] actor   ARGV[2] tasks looked at, at most   ARGV[3] tickets looked at, at most
-- ARGV[4] time from the first look without a ticket to a new ticket, ms
-- ARGV[5] "1" when which types are parked is to be put right too, which costs a call for each published type
-- returns number moved, number moved, then what was wrong with the others
-- appends REQUEUE

local queue = string.sub(KEYS[1], #key.rq_queue + 1)
local actor, limit, window, hand_over = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local corrects_parking = ARGV[5] == "1"
local pending, list = key.pending .. queue, key.rq_queue .. queue
local in_hand_over, parked = list .. key.rq_intermediate_suffix, key.parked_types .. queue

local SEARCHED = 10 -- of the oldest tasks of a list longer than the window

-- Whether the task has been without a ticket for long enough. The lists are searched only when that may be.
local function is_due(task, now)
  local since = tonumber(redis.call("HGET", key.task .. task.id, "unticketed_at"))
  if not since then redis.call("HSET", key.task .. task.id, "unticketed_at", now) end
  if not is_ticket_lost(since, now, hand_over, false) then return false end
  if redis.call("LPOS", list, task.id) then
    redis.call("HSET", key.task .. task.id, "unticketed_at", now)
    return false
  end
  return is_ticket_lost(since, now, hand_over, is_in_hand_over(list, task.id))
end

local function put_back(task, now)
  if not is_due(task, now) then return "kept" end
  redis.call("HSET", key.task .. task.id, "unticketed_at", now) -- until it is looked at again, should this fail
  local move = new_move(task)
  add_step(move, Event.REQUEUE, actor, Reason.REPAIR, "its ticket was gone from the queue")
  local problem = commit(move, now, {})
  if problem then return problem end
  redis.call("LREM", in_hand_over, 1, task.id)
  push_ticket(task, true)
  return "moved"
end

-- An entry that was lost is found again for every type that is published, that is, as soon as it matters to a worker.
local function correct_parked_types()
  for _, task_type in ipairs(redis.call("HKEYS", key.types)) do
    local is_there = redis.call("TYPE", parking_place(queue, task_type)).ok == "zset"
    if is_there and redis.call("SISMEMBER", parked, task_type) == 0 then redis.call("SADD", parked, task_type) end
  end
  for _, task_type in ipairs(redis.call("SMEMBERS", parked)) do
    if redis.call("EXISTS", parking_place(queue, task_type)) == 0 then redis.call("SREM", parked, task_type) end
  end
end

-- Beside something else than its owner's index the first of the queue would not start, and hold up all behind it.
local function free_head()
  local first = redis.call("LINDEX", list, 0)
  local owner = first and redis.pcall("HGET", key.task .. first, "owner")
  return type(owner) == "string" and make_room(key.owned .. owner, "zset") or nil
end

local problem = check_type(key.history, "stream") or check_type(list, "list") or check_type(in_hand_over, "list")
  or check_type(key.queues, "hash") or check_type(key.rq_queues, "set")
if problem then return problem end
local now, moved, problems = clock(), 0, problems_of_quarantine()
local was_none = make_room(pending, "zset")
if was_none then return {0, 0, was_none} end -- its tasks come back with the audit
problems[#problems + 1] = make_room(parked, "set")
problems[#problems + 1] = free_head()
local damage = check_type(key.types, "hash")
if damage then problems[#problems + 1] = damage.err elseif corrects_parking then correct_parked_types() end
if redis.call("LLEN", list) > window then limit = math.min(limit, SEARCHED) end
local oldest = redis.call("ZRANGE", pending, 0, limit - 1)
if #oldest == 0 then
  -- Nothing waits: what nobody paused need not be watched either.
  local is_idle = redis.call("EXISTS", parked) == 0 and redis.call("HGET", key.queues, queue) == "running"
  if is_idle then redis.call("HDEL", key.queues, queue) end
  return {0, 0, unpack(problems)}
end
local present = {}
for _, id in ipairs(redis.call("LRANGE", list, 0, window - 1)) do present[id] = true end

for index = #oldest, 1, -1 do -- each goes to the head, so the oldest last
  local id = oldest[index]
  if not present[id] then
    local task, damage = read_task(id)
    if damage then
      problems[#problems + 1] = set_aside(pending, id, damage)
    elseif task.state ~= State.PENDING or task.queue ~= queue then
      redis.call("ZREM", pending, id)
    else
      local answer = put_back(task, now)
      if answer == "moved" then
        moved = moved + 1
      elseif answer.err then
        problems[#problems + 1] = answer.err
      end
    end
  end
end
return {moved, moved, unpack(problems)}
