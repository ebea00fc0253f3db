-- Accepts a bulk action: writes its record, and puts it behind those that run. No task is touched yet.
--
-- KEYS[1] hash    bulk:{id}
-- ARGV[1] fingerprint of what was asked for, to tell a repeated call from another one
-- ARGV[2] bulk actions that may run at a time   ARGV[3] those that are listed, at most
-- ARGV[4] ARGV[5] the same of those that are bound to one owner
-- ARGV[6] fields of the record, JSON object     ARGV[7..n] ids of the tasks that it is for, if it names them
-- returns moved | already | conflict | refused, with id
-- appends nothing

local id = string.sub(KEYS[1], #key.bulk + 1)
local fingerprint, running_most, listed_most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local owners_running_most, owners_listed_most = tonumber(ARGV[4]), tonumber(ARGV[5])
local fields = cjson.decode(ARGV[6])
local task_ids = {}
for index = 7, #ARGV do task_ids[#task_ids + 1] = ARGV[index] end

-- Returns those in a list that are bound to the same owner: he fills his own share, and others do not feel it.
local function of_owner(list)
  local found = {}
  if not fields.bound_to then return found end
  for _, other in ipairs(redis.call("LRANGE", list, 0, -1)) do
    if redis.pcall("HGET", key.bulk .. other, "bound_to") == fields.bound_to then found[#found + 1] = other end
  end
  return found
end

local name, ids = key.bulk .. id, key.bulk_ids .. id
local problem = check_type(name, "hash") or check_type(ids, "list")
  or check_type(key.bulks, "list") or check_type(key.bulks_running, "list")
if problem then return problem end
if redis.call("EXISTS", name) == 1 then
  return {redis.call("HGET", name, "fingerprint") == fingerprint and "already" or "conflict", "id", id}
end
if redis.call("LLEN", key.bulks_running) >= running_most or #of_owner(key.bulks_running) >= owners_running_most then
  return {"refused", "id", id}
end

local record = {"fingerprint", fingerprint, "created_at", clock()}
for field, value in pairs(fields) do
  record[#record + 1] = field
  record[#record + 1] = value
end
-- Needs no memory, and lets the writes after it pass at a full Redis.
redis.call("LTRIM", key.bulks, 0, listed_most - 2)
local owners = of_owner(key.bulks)
for index = owners_listed_most, #owners do redis.call("LREM", key.bulks, -1, owners[index]) end
redis.call("DEL", ids)
redis.call("HSET", name, unpack(record))
if #task_ids > 0 then redis.call("RPUSH", ids, unpack(task_ids)) end
redis.call("LPUSH", key.bulks, id)
redis.call("RPUSH", key.bulks_running, id)
return {"moved", "id", id}
