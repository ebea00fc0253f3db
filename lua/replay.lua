-- Whether a task's history leads through the table to the state that the task is in.

local function entry_of(id)
  local found = string.find(id, "^%d+%-%d+$") and redis.pcall("XRANGE", key.history, id, id) or {}
  if found.err or not found[1] then return end
  local entry, fields = {}, found[1][2]
  for index = 1, #fields, 2 do entry[fields[index]] = fields[index + 1] end
  return entry
end

local function is_legal(state, entry)
  if state == "" then return entry.event == Event.SUBMIT and entry.from == "" and INITIAL[entry.to] end
  if entry.from ~= state or UNRECORDED[entry.event] then return false end
  return entry.to and MOVES[state .. " " .. (entry.event or "")] == entry.to
end

local function is_after(id, earlier)
  local time, number = string.match(id, "(%d+)%-(%d+)")
  local earlier_time, earlier_number = string.match(earlier, "(%d+)%-(%d+)")
  if time == earlier_time then return tonumber(number) > tonumber(earlier_number) end
  return tonumber(time) > tonumber(earlier_time)
end

-- Returns what is wrong with an entry, if anything.
local function fault_of(entry, task, state, attempt)
  if not is_legal(state, entry) then
    local from = state == "" and "the start" or state
    return string.format("(%s to %s) is no legal step from %s", tostring(entry.event), tostring(entry.to), from)
  end
  if entry.task ~= task.id then return "is of another task" end
  if tonumber(entry.attempt) ~= attempt then
    return "is of attempt " .. tostring(entry.attempt) .. ", not " .. attempt
  end
  if not REASONS[entry.reason] then return "has an unknown reason" end
  if not entry.actor or entry.actor == "" then return "names no actor" end
  if entry.type ~= task.type or entry.queue ~= task.queue or entry.owner ~= (task.owner or "") then
    return "is of another type, queue or owner"
  end
end

-- Calls `tell(rule, text)` with the first fault of the history, and with what does not fit its end.
local function replay(task, tell)
  local name, state, attempt, newest = key.task .. task.id, "", 0, "0-0"
  for number = 1, task.entries do
    local id = redis.call("HGET", name, "h" .. number) or "no id"
    local entry = entry_of(id)
    -- The first one missing ends it, so that an absurd number of entries costs nothing.
    if not entry then return tell("e", "entry " .. number .. " (" .. id .. ") is not in the history") end
    if entry.event == Event.START then attempt = attempt + 1 end
    local fault = fault_of(entry, task, state, attempt)
      or not is_after(id, newest) and "is not newer than the one before"
    if fault then return tell("e", "entry " .. number .. " " .. fault) end
    state, newest = entry.to, id
  end
  if state ~= task.state then
    tell("e", "it is " .. task.state .. ", and its history ends in " .. (state == "" and "nothing" or state))
  end
  if attempt ~= task.attempt then
    tell("e", "it is at attempt " .. task.attempt .. ", and its history has " .. attempt .. " starts")
  end
end
