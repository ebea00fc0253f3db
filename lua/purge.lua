-- Removes final tasks whose retention is over, with all that belongs to them; a tombstone keeps the id taken.
-- uses batch
--
-- ARGV[1] tasks looked at, at most   ARGV[2] life of a tombstone, ms
-- returns number looked at, number purged, then what was wrong with the others
-- appends RELEASE or CANCEL for those that waited for it, and deletes the task's entries

local limit, tombstone_life = tonumber(ARGV[1]), tonumber(ARGV[2])

-- Returns what is wrong with the ids of the entries, if anything.
local function delete_history(task)
  local name, entries = key.task .. task.id, {}
  -- Each entry has a field of its own, so a higher count is damage and no reason to count that far.
  for index = 1, math.min(task.entries, redis.call("HLEN", name)) do
    entries[#entries + 1] = redis.call("HGET", name, "h" .. index) or nil
  end
  for first = 1, #entries, 1000 do
    local outcome = redis.pcall("XDEL", key.history, unpack(entries, first, math.min(first + 999, #entries)))
    if type(outcome) == "table" then return damaged(name .. " ids of entries", "ids of a stream", outcome.err) end
  end
end

local problem = check_types({{key.retention, "zset"}, {key.history, "stream"}})
  or check_ledger("purged")
if problem then return problem end
local now = clock()
return each_due(key.retention, now, limit, FINAL, function(task)
  local id = task.id
  -- Those that wait for it must hear first how it ended.
  if task.dependents and not settle(task, now) then return "kept" end
  local damage = check_types({{key.state .. task.state, "zset"}}) or delete_history(task)
  if damage then return damage end
  redis.call("ZREM", key.retention, id)
  redis.call("ZREM", key.state .. task.state, id)
  redis.call(
    "UNLINK", key.task .. id, key.params .. id, key.metadata .. id, key.checkpoint .. id, key.result .. id,
    key.error .. id, key.log .. id, key.heartbeat .. id, key.rq_job .. id, key.depends_on .. id, key.dependents .. id
  )
  redis.call("SET", key.tombstone .. id, task.state .. " " .. now, "PX", tombstone_life)
  redis.call("HINCRBY", key.ledger, "purged", 1)
  return "moved"
end)
