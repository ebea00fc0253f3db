-- Removes final tasks whose retention is over, with all that belongs to them; a tombstone keeps the id taken.
-- uses batch
--
-- ARGV[1] tasks looked at, at most   ARGV[2] life of a tombstone, ms
-- returns number looked at, number purged, then what was wrong with the others
-- appends nothing, and deletes the task's entries

local limit, tombstone_life = tonumber(ARGV[1]), tonumber(ARGV[2])

local function delete_history(task)
  local fields = {}
  for index = 1, task.entries do fields[index] = "h" .. index end
  for first = 1, #fields, 1000 do
    local entries = {}
    for _, entry in ipairs(redis.call("HMGET", key.task .. task.id, unpack(fields, first, math.min(first + 999, #fields)))) do
      if entry then entries[#entries + 1] = entry end
    end
    if #entries > 0 then redis.call("XDEL", key.history, unpack(entries)) end
  end
end

local problem = check_types({
  {key.retention, "zset"}, {key.quarantine, "hash"}, {key.history, "stream"}, {key.ledger, "hash"},
})
if problem then return problem end
local now = clock()
return each_due(key.retention, now, limit, FINAL, function(task)
  local id = task.id
  local wrong_type = check_types({{key.state .. task.state, "zset"}})
  if wrong_type then return wrong_type end
  delete_history(task)
  redis.call("ZREM", key.retention, id)
  redis.call("ZREM", key.state .. task.state, id)
  redis.call(
    "UNLINK", key.task .. id, key.params .. id, key.metadata .. id, key.checkpoint .. id, key.result .. id,
    key.error .. id, key.log .. id, key.heartbeat .. id
  )
  redis.call("SET", key.tombstone .. id, task.state .. " " .. now, "PX", tombstone_life)
  redis.call("HINCRBY", key.ledger, "purged", 1)
  return "moved"
end)
