-- Removes final tasks whose retention is over, with all that belongs to them; a tombstone keeps the id taken.
-- Where tasks are to be archived first, only what was archived goes, and only when nothing happened to it since.
-- A long history is deleted by several calls, so that Redis never waits long: its task's record is left over for them.
-- uses batch
--
-- ARGV[1] tasks looked at, at most   ARGV[2] life of a tombstone, ms   ARGV[3] entries of histories deleted, at most
-- ARGV[4] name of the archive's file, or ""
-- ARGV[5..n] id of an archived task, then its last entry, "" for one that could not be archived; none where the caller
--         archives nothing
-- returns number looked at (as many as there may be, when there is more to do), number purged, then what was wrong with
--   the others
-- appends RELEASE or CANCEL for those that waited for it, and deletes the tasks' entries

local limit, tombstone_life, budget = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local file = ARGV[4]

local OVERDUE = 600000 -- ms that a task waits to be archived before that is told

-- Each entry has a field of its own, so a higher count is damage and no reason to count that far.
local function at_most_its_fields(count, name)
  return math.min(count, redis.call("HLEN", name))
end

-- Deletes the entries from `first` to `count` that a record names, the oldest first, as many as this call may: a reader
-- finds no step without those that followed it. Returns the first one left, or nil and what is wrong with their ids.
local function delete_entries(name, first, count)
  local fields, ids = {}, {}
  for number = first, math.min(count, first + budget - 1) do fields[#fields + 1] = "h" .. number end
  if #fields == 0 then return first end
  for _, id in ipairs(redis.call("HMGET", name, unpack(fields))) do ids[#ids + 1] = id or nil end
  local outcome = #ids > 0 and redis.pcall("XDEL", key.history, unpack(ids))
  if type(outcome) == "table" then return nil, damaged(name .. " ids of entries", "ids of a stream", outcome.err) end
  budget = budget - #fields
  return first + #fields
end

-- Goes on with what earlier calls left over.
local function clear_leftovers(problems)
  local left = redis.call("LINDEX", key.leftovers, 0)
  while left and budget > 0 do
    local name = key.leftover .. left
    local damage, first, count = check_type(name, "hash"), 1, 0
    if not damage then
      local values = redis.call("HMGET", name, "entries", "deleted_to")
      count = at_most_its_fields(whole(values[1] or "") or 0, name)
      first, damage = delete_entries(name, (whole(values[2] or "") or 0) + 1, count)
    end
    if not damage and first <= count then
      redis.call("HSET", name, "deleted_to", first - 1)
      return
    end
    redis.call("LPOP", key.leftovers)
    if damage then
      quarantine(key.leftovers, left, damage)
      problems[#problems + 1] = damage.err
    else
      redis.call("UNLINK", name)
    end
    left = redis.call("LINDEX", key.leftovers, 0)
  end
end

-- Removes the record with the entries that it names, or leaves it over for later calls. Returns what is wrong with it.
local function remove_record(task, now)
  local name = key.task .. task.id
  local count = at_most_its_fields(task.entries, name)
  if count <= budget then
    local _, damage = delete_entries(name, 1, count)
    if damage then return damage end
    redis.call("UNLINK", name)
  else
    local left = task.id .. "." .. now
    redis.call("RENAME", name, key.leftover .. left)
    redis.call("RPUSH", key.leftovers, left)
  end
end

local function remove(task, now)
  local id = task.id
  -- Those that wait for it must hear first how it ended.
  if task.dependents and not settle(task, now) then return "kept" end
  local damage = check_type(key.state .. task.state, "zset") or check_owner_type(task) or remove_record(task, now)
  if damage then return damage end
  redis.call("ZREM", key.retention, id)
  redis.call("ZREM", key.state .. task.state, id)
  if task.owner then redis.call("ZREM", key.owned .. task.owner, id) end
  leave_listing(task)
  local rest = {key.heartbeat .. id, key.rq_job .. id}
  for _, kind in ipairs(VALUES) do rest[#rest + 1] = key[kind] .. id end
  redis.call("UNLINK", unpack(rest))
  local epitaph = task.state .. " " .. now .. (file ~= "" and " " .. file or "")
  redis.call("SET", key.tombstone .. id, epitaph, "PX", tombstone_life)
  redis.call("HINCRBY", key.ledger, "purged", 1)
  if file ~= "" then redis.call("HINCRBY", key.ledger, "archived", 1) end
  return "moved"
end

-- Another watchdog may have archived the same tasks, and purged them already.
local function purge_archived(now)
  local ids, entries = {}, {}
  for index = 5, #ARGV, 2 do
    local id = ARGV[index]
    local due_at = tonumber(redis.call("ZSCORE", key.retention, id) or now + 1)
    if due_at <= now then
      ids[#ids + 1] = id
      entries[id] = ARGV[index + 1]
    end
  end
  return each_of(key.retention, ids, now, FINAL, function(task)
    local last = redis.call("HGET", key.task .. task.id, "h" .. task.entries)
    if last ~= entries[task.id] then return "later" end
    return remove(task, now)
  end)
end

-- What is wrong in the index is found here too. What is right there waits, and is no reason to come back at once.
local function wait_for_archivist(now)
  local swept = each_due(key.retention, now, limit, FINAL, function() return "kept" end)
  swept[1] = 0
  if redis.call("ZCOUNT", key.retention, "-inf", now - OVERDUE) > 0 then
    -- Without their number, since what is told in other words each time is logged each time.
    swept[#swept + 1] = "tasks wait to be archived; does a watchdog run with GHOSTLESS_ARCHIVE_TO?"
  end
  return swept
end

local function purge(now)
  if #ARGV > 4 then return purge_archived(now) end
  if redis.call("HEXISTS", key.limits, key.archive_demand) == 0 then
    return each_due(key.retention, now, limit, FINAL, function(task) return remove(task, now) end)
  end
  return wait_for_archivist(now)
end

local problem = check_type(key.history, "stream") or check_type(key.limits, "hash")
  or check_type(key.leftovers, "list") or check_ledger("purged") or check_ledger("archived")
if problem then return problem end
local problems = {}
problems[1] = make_room(key.retention, "zset")
clear_leftovers(problems)
local swept = purge(clock())
for _, told in ipairs(problems) do swept[#swept + 1] = told end
if redis.call("EXISTS", key.leftovers) == 1 then swept[1] = math.max(swept[1], limit) end
return swept
