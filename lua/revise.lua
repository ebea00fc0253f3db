-- Writes the record of a callback's delivery, if it still is as its caller read it, and when it is to be tried next.
-- uses due
--
-- KEYS[1] hash    deliveries:{id}   KEYS[2] zset    due_deliveries:{host}   KEYS[3] zset    due_receivers
-- ARGV[1] id of the delivery
-- ARGV[2] record as it was read, "" for none   ARGV[3] record as it is to be
-- ARGV[4] ms until it is tried, or "" for never   ARGV[5] life of the records once none of the task's waits, ms
-- ARGV[6] records of the task that are kept, the newest; beyond them those that are still to be tried
-- returns moved | already | stale
-- appends nothing

local records, due, receivers = KEYS[1], KEYS[2], KEYS[3]
local delivery, before, after = ARGV[1], ARGV[2], ARGV[3]
local wait, life, kept = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])

-- Removes the oldest records of which nothing is to be tried any more, until there is room for one.
local function make_room(task)
  local surplus = redis.call("HLEN", records) + 1 - kept
  if surplus <= 0 then return end
  local known = redis.call("HKEYS", records)
  table.sort(known) -- their ids begin with the time
  for _, other in ipairs(known) do
    if surplus > 0 and not redis.call("ZSCORE", due, task .. " " .. other) then
      redis.call("HDEL", records, other)
      surplus = surplus - 1
    end
  end
end

-- Returns whether a record is one that will be tried again; one that cannot be read will not.
local function waits(record)
  local is_json, value = pcall(cjson.decode, record)
  return is_json and type(value) == "table" and value.state == "waiting"
end

local problem = check_type(records, "hash") or check_type(due, "zset") or check_type(receivers, "zset")
if problem then return problem end
local record = redis.call("HGET", records, delivery) or ""
if record ~= before and record ~= after then return {"stale"} end
local task = string.sub(records, #key.deliveries + 1)
local member = task .. " " .. delivery
local is_repeated, now = record == after, clock()
-- What needs no memory comes first, so that the rest runs through at a full Redis.
redis.call("PERSIST", records)
if record == "" then make_room(task) end
if not is_repeated then redis.call("ZREM", due, member) end
redis.call("HSET", records, delivery, after)
local is_waiting = false
for _, text in ipairs(redis.call("HVALS", records)) do is_waiting = is_waiting or waits(text) end
if not is_waiting then redis.call("PEXPIRE", records, life) end
if wait then redis.call("ZADD", due, "NX", now + wait, member) end
note_turn(receivers, string.sub(due, #key.due_deliveries + 1), now)
return {is_repeated and "already" or "moved"}
