-- Does a page of the bulk action whose turn it is, and puts it behind the others that run.
-- The tasks are moved by the script that notes how far the action is: whoever dies between two calls, no task is
-- passed over, and none counts twice.
-- uses person
--
-- ARGV[1] tasks looked at, at most   ARGV[2] µs after which the page ends   ARGV[3] life of a record after its end, ms
-- ARGV[4] passes over the states, at most, of an action that goes after tasks which move on meanwhile
-- returns 1 when more is to be done at once or else 0, number moved, then what was wrong with the others
-- appends CANCEL, PAUSE, RESUME or RETRY; CANCEL also of tasks that waited for those cancelled

local looks, time, life, passes = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

local TOLD = 20 -- tasks of which the record says why they were not moved
local TEXTS = {"event", "actor", "reason", "message", "states", "filter"}
local COUNTS = {"looked_at", "moved", "already", "refused", "damaged", "told"}
-- How far it is: in which pass, at which of the states (0: the pass is to begin), the times of entering a state that
-- the pass begins and ends with.
local PLACE = {"pass", "at", "floor", "bound"}
local GIVEN = {"limit", "created_at", "number_of_ids"}
local LOOKED_AT = {"state", "type", "queue", "owner", "submitted_at", "entered_at"}

local record, message, started
local notes, problems, looked, moved, is_held_up = {}, {}, 0, 0, false

-- Returns the record; beside nothing, what is wrong with it.
local function read_record(id)
  local name = key.bulk .. id
  local damage = check_type(name, "hash") or check_type(key.bulk_ids .. id, "list")
  if damage then return nil, damage end
  local fields, read = redis.call("HGETALL", name), {id = id, name = name}
  if #fields == 0 then return nil, damaged(key.bulks_running, "bulk actions that have a record", id) end
  for index = 1, #fields, 2 do read[fields[index]] = fields[index + 1] end
  for _, field in ipairs(TEXTS) do
    if not read[field] then return nil, damaged(name .. " field " .. field, "text", "nothing") end
  end
  if not Event[read.event] then return nil, damaged(name .. " field event", "an event", read.event) end
  for _, names in ipairs({COUNTS, PLACE, GIVEN}) do
    for _, field in ipairs(names) do
      local number = whole(read[field] or "0")
      if not number then return nil, damaged(name .. " field " .. field, "a whole number", read[field]) end
      read[field] = number
    end
  end
  local is_json, filter = pcall(cjson.decode, read.filter)
  local is_filter = is_json and type(filter) == "table"
    and type(filter.after or 0) == "number" and type(filter.before or 0) == "number"
  if not is_filter then return nil, damaged(name .. " field filter", "a filter", read.filter) end
  read.filter = filter
  read.score, read.anchor = read.score or "0", read.anchor or ""
  if not string.find(read.score, "^%d+") then
    return nil, damaged(name .. " field score", "a time in ms", read.score)
  end
  return read
end

local function is_full()
  return record.moved + record.already + record.refused + record.damaged >= record.limit
end

local function is_spent()
  return is_full() or looked >= looks or looked > 0 and microseconds() - started >= time
end

local function accepts(task)
  local filter = record.filter
  for _, field in ipairs({"state", "type", "queue", "owner"}) do
    if filter[field] and filter[field] ~= task[field] then return false end
  end
  local submitted_at, entered_at = whole(task.submitted_at or "") or 0, whole(task.entered_at or "") or 0
  return submitted_at <= record.created_at and entered_at >= (filter.after or 0)
    and entered_at <= (filter.before or entered_at)
end

-- What is wrong is for the watchdog's log: the record is also read by those who may not know it.
local function tell_damage(damage)
  problems[#problems + 1] = damage.err
  return "damaged"
end

-- Returns what became of a task, and the state it is in. `state` is the one in whose index it was found.
local function act_on(id, state)
  local stored, damage = fetch("hash", "HMGET", key.task .. id, unpack(LOOKED_AT))
  if damage and record.filter.owner then return "unmatched" end -- whose it is cannot be told
  if damage then return tell_damage(damage) end
  local task = {}
  for index, field in ipairs(LOOKED_AT) do task[field] = stored[index] or nil end
  local is_here = task.state and (not state or task.state == state)
  if not is_here or not accepts(task) then return "unmatched" end
  local answer = ask(id, record.event, record.actor, record.reason, message)
  if answer.err then return tell_damage(answer) end
  return answer[1], task.state
end

-- Returns whether the task was moved, and so has left the index it was found in.
local function look_at(id, state)
  local word, its_state = act_on(id, state)
  looked = looked + 1
  record.looked_at = record.looked_at + 1
  if word ~= "unmatched" then record[word] = record[word] + 1 end
  if word == "moved" then moved = moved + 1 end
  -- Who named a task is told also that there is none; in an index, most of the others are meant to be passed over.
  local is_told = word == "damaged" or word == "refused" or word == "unmatched" and not state
  if is_told and record.told < TOLD then
    record.told = record.told + 1
    notes["told" .. record.told] = word .. " " .. id .. " " .. (its_state or "")
  end
  return word == "moved"
end

-- Returns whether all are done with.
local function work_off_ids()
  local ids, done = key.bulk_ids .. record.id, 0
  for _, id in ipairs(redis.call("LRANGE", ids, 0, looks - 1)) do
    if is_spent() then break end
    look_at(id)
    done = done + 1
  end
  redis.call("LTRIM", ids, done, -1)
  return redis.call("EXISTS", ids) == 0
end

-- Where to go on: behind the last task that was looked at and stayed. Where that one has left, with the first of those
-- that entered the state in the same millisecond as the last one looked at.
local function rank_in(index)
  if record.anchor ~= "" and redis.call("ZSCORE", index, record.anchor) == record.score then
    return redis.call("ZRANK", index, record.anchor) + 1
  end
  return redis.call("ZCOUNT", index, "-inf", "(" .. record.score)
end

-- Returns whether the pass is through with this state.
local function work_off_state(state)
  local index = key.state .. state
  local damage = check_type(index, "zset")
  if damage then
    problems[#problems + 1], is_held_up = damage.err, true
    return false
  end
  local first = rank_in(index)
  local page = redis.call("ZRANGE", index, first, first + looks - 1, "WITHSCORES")
  for position = 1, #page, 2 do
    local id, score = page[position], page[position + 1]
    if tonumber(score) > record.bound then return true end
    if is_spent() then return false end
    record.score = score
    if not look_at(id, state) then record.anchor = id end
  end
  return #page < 2 * looks
end

local function begin_pass()
  record.pass, record.at, record.score, record.anchor = record.pass + 1, 1, record.floor, ""
  record.bound = clock()
  if record.goes_after then return end
  record.bound = math.min(record.created_at, record.filter.before or record.created_at)
end

-- Returns whether the action is over. A pass that a single call makes has missed nothing; behind a longer one tasks
-- may have moved from a state that was still to come to one that was done with: the next pass looks at those that
-- entered a state since.
local function work_off_states()
  local is_whole = record.at == 0
  if is_whole then begin_pass() end
  local states = {}
  for state in string.gmatch(record.states, "[^,]+") do states[#states + 1] = state end
  while record.at <= #states do
    if not work_off_state(states[record.at]) then return false end
    record.at, record.score, record.anchor = record.at + 1, record.floor, ""
  end
  record.at, record.floor = 0, record.bound
  return is_whole or not record.goes_after or record.pass >= passes
end

local function write_record()
  for _, names in ipairs({COUNTS, PLACE, {"score", "anchor"}}) do
    for _, field in ipairs(names) do notes[field] = record[field] end
  end
  local values = {}
  for field, value in pairs(notes) do
    values[#values + 1] = field
    values[#values + 1] = value
  end
  redis.call("HSET", record.name, unpack(values))
end

local function work_off()
  started = microseconds()
  message = "bulk action " .. record.id .. (record.message ~= "" and ": " .. record.message or "")
  redis.call("PERSIST", record.name) -- needs no memory, and lets the writes after it pass at a full Redis
  local is_through = (record.number_of_ids > 0 and work_off_ids or work_off_states)()
  redis.call("LREM", key.bulks_running, 0, record.id)
  if is_through or is_full() then
    redis.call("DEL", key.bulk_ids .. record.id)
    notes.ended_at = clock()
    notes.reached_limit = not is_through and 1 or nil
  else
    redis.call("RPUSH", key.bulks_running, record.id) -- behind the others
  end
  write_record()
  if notes.ended_at then redis.call("PEXPIRE", record.name, life) end
end

local problem = check_type(key.bulks_running, "list")
if problem then return problem end
local id = redis.call("LINDEX", key.bulks_running, 0)
if not id then return {0, 0} end
problem = check_type(key.history, "stream")
if problem then return problem end
record, problem = read_record(id)
if record then
  work_off()
else
  redis.call("LREM", key.bulks_running, 0, id)
  redis.pcall("DEL", key.bulk_ids .. id)
  quarantine(key.bulks_running, id, problem)
  problems[1] = problem.err
end
local is_more = redis.call("EXISTS", key.bulks_running) == 1 and not is_held_up
return {is_more and 1 or 0, moved, unpack(problems)}
