-- Looks through a part of the history for entries that no task names: of tasks that are gone.
--
-- ARGV[1] id of the entry to go on after   ARGV[2] entries looked at, at most   ARGV[3] "1" to delete them
-- returns number looked at (not all where the tasks' hashes are big), number deleted, id to go on after, then
--   {id, task} of each entry
-- appends nothing

local after, limit, deletes = ARGV[1], tonumber(ARGV[2]), ARGV[3] == "1"

local VALUES_AT_MOST = 10000 -- read of the tasks' hashes, and those of one more task

local problem = check_type(key.history, "stream")
if problem then return problem end
local known, values_left = {}, VALUES_AT_MOST -- id of a task -> the values of its hash

local function is_named(id, task_id)
  if not known[task_id] then
    known[task_id] = {}
    local values = redis.pcall("HVALS", key.task .. task_id)
    -- What cannot be read may name it.
    if values.err then known[task_id] = setmetatable({}, {__index = function() return true end}) end
    for _, value in ipairs(values) do known[task_id][value] = true end
    values_left = values_left - #values
  end
  return known[task_id][id]
end

local page = redis.call("XRANGE", key.history, "(" .. after, "+", "COUNT", limit)
local looked, deleted, answer = 0, 0, {}
for _, entry in ipairs(page) do
  local id, fields = entry[1], entry[2]
  local task_id = ""
  for index = 1, #fields, 2 do
    if fields[index] == "task" then task_id = fields[index + 1] end
  end
  if not is_named(id, task_id) then
    if deletes then deleted = deleted + redis.call("XDEL", key.history, id) end
    answer[#answer + 1] = {id, task_id}
  end
  looked, after = looked + 1, id
  if values_left <= 0 then break end
end
return {looked, deleted, after, unpack(answer)}
