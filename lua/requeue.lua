-- Makes new tickets for PENDING tasks whose ticket is gone from rq's list.
-- A task whose ticket is gone becomes the oldest of its queue, and the oldest tickets are at the head of the
-- list: comparing both ends finds it without walking a long queue.
-- A stock rq worker pops a ticket some time before it starts the task, so a task must be without one at two looks.
-- uses batch
--
-- KEYS[1] list    rq:queue:{queue}
-- ARGV[1] actor   ARGV[2] tasks looked at, at most   ARGV[3] tickets looked at, at most
-- ARGV[4] time from the first look without a ticket to a new ticket, ms
-- returns number dealt with, number moved, then what was wrong with the others
-- appends REQUEUE

local queue = string.sub(KEYS[1], #key.rq_queue + 1)
local actor, limit, window, hand_over = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local pending, list = key.pending .. queue, key.rq_queue .. queue

local function put_back(task, now)
  local since = tonumber(redis.call("HGET", key.task .. task.id, "unticketed_at"))
  if not since then redis.call("HSET", key.task .. task.id, "unticketed_at", now) end
  if not since or now - since < hand_over then return "kept" end
  local move = new_move(task)
  add_step(move, Event.REQUEUE, actor, Reason.REPAIR, "its ticket was gone from the queue")
  move.delete = {"unticketed_at"}
  local problem = commit(move, now, {})
  if problem then return problem end
  push_ticket(task, true)
  return "moved"
end

local problem = check_types({
  {pending, "zset"}, {list, "list"}, {key.quarantine, "hash"}, {key.wake .. queue, "list"}, {key.rq_queues, "set"},
})
if problem then return problem end
local oldest = redis.call("ZRANGE", pending, 0, limit - 1)
if #oldest == 0 then return {0, 0} end
-- Behind a head longer than the window lie tickets not looked at: then nothing is proved.
if redis.call("LLEN", list) > window then return {0, 0} end
local present = {}
for _, id in ipairs(redis.call("LRANGE", list, 0, window - 1)) do present[id] = true end

local now, moved, problems = clock(), 0, {}
for index = #oldest, 1, -1 do -- each goes to the head, so the oldest last
  local id = oldest[index]
  if not present[id] then
    local task, damage = read_task(id)
    if damage then
      set_aside(pending, id, damage.err or "no task of this id")
      problems[#problems + 1] = damage.err or ("CORRUPT " .. pending .. ": no task " .. id)
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
return {moved + #problems, moved, unpack(problems)}
