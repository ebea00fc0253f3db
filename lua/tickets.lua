-- The ticket of a task in rq's lists, compared with what its state demands.

local SHORT_LIST = 1000 -- tickets up to which a queue's list is searched without being asked to

local function write_job(task)
  redis.call("DEL", key.rq_job .. task.id)
  redis.call("HSET", key.rq_job .. task.id, "origin", task.queue, unpack(TICKET))
end

local function needs_ticket(task)
  return task.state == State.PENDING and not task.parked_at
end

local function tell_missing_ticket(look, list, status)
  local task, terms, name = look.task, look.terms, key.task .. look.id
  local on_its_way = status == "started" or is_in_hand_over(list, task.id)
  local since = whole(redis.call("HGET", name, "unticketed_at") or "")
  local fix = {later = function() redis.call("HSETNX", name, "unticketed_at", terms.now) end}
  if is_ticket_lost(since, terms.now, terms.hand_over, on_its_way) then
    local problem = check_queue_types(task.queue) or check_entrance_types(task.queue)
    if problem then return tell(look, "c", problem.err) end
    fix = {adds = function()
      redis.call("LREM", list .. key.rq_intermediate_suffix, 0, task.id)
      redis.call("HDEL", name, "unticketed_at")
      push_ticket(task, true)
    end}
  elseif on_its_way then
    look.noted = fix.later -- nothing is wrong yet
    return
  end
  tell(look, "b", "it is PENDING and has no ticket in " .. list, fix)
end

-- Returns the number of tickets that the task has in the queue's list.
local function check_list(look, queue, status)
  local task, list = look.task, key.rq_queue .. queue
  local length = redis.pcall("LLEN", list)
  if type(length) == "table" then tell_damage(look, list, "list") return 0 end
  if length > SHORT_LIST and queue ~= look.terms.queue then return 1 end -- not searched, and taken to be there
  local number = length > 0 and #redis.call("LPOS", list, task.id, "COUNT", 0) or 0
  local is_needed = needs_ticket(task) and queue == task.queue
  local surplus = is_needed and number - 1 or number
  if surplus > 0 then
    local tickets = number == 1 and " ticket in " or " tickets in "
    local text = "it is " .. task.state .. " and has " .. number .. tickets .. list
    tell(look, "b", text, {frees = function() redis.call("LREM", list, -surplus, task.id) end})
  elseif surplus < 0 then
    tell_missing_ticket(look, list, status)
  end
  return number
end

local function check_tickets(look)
  local task, queue = look.task, look.terms.queue
  local job = redis.pcall("HMGET", key.rq_job .. task.id, "origin", "status", "data")
  if job.err then job = {} end -- a ticket is constant, and written anew
  local is_ours, status = job[1] == task.queue and job[3], job[2]
  if queue ~= "" and queue ~= task.queue then check_list(look, queue, status) end
  local number = check_list(look, task.queue, status)
  -- While a stock worker runs the task its job is there too, but is not called queued.
  if needs_ticket(task) then
    if number > 0 and not (is_ours and (status == "queued" or status == "started")) then
      tell(look, "b", "it is PENDING and its ticket is empty", {adds = function() write_job(task) end})
    end
  elseif is_ours and status == "queued" then
    tell(look, "b", "it is " .. task.state .. " and its ticket is still there", {
      frees = function() redis.call("DEL", key.rq_job .. task.id) end,
    })
  end
end

-- Whether rq's record of a job has no call: a stock worker that beats on makes one, whether its ticket is gone or not.
local function has_no_call(id)
  return redis.pcall("HEXISTS", key.rq_job .. id, "data") == 0
end

-- A ticket of a task that is gone. A plain rq job has no task, and a record that is not our ticket's.
local function is_orphan(list, id)
  local places = redis.pcall("LPOS", list, id, "COUNT", 0)
  return not places.err and #places > 0 and (is_ticket(id) or has_no_call(id))
end

-- What rq keeps of a ticket of a task that is gone; of one without a call only a tombstone tells that it was a task's.
local function is_left_job(id)
  if is_ticket(id) then return true end
  return has_no_call(id) and redis.call("EXISTS", key.rq_job .. id, key.tombstone .. id) == 2
end
