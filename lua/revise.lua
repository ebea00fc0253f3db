-- Writes the record of a callback's delivery, if it still is as its caller read it, and when it is to be tried next.
--
-- KEYS[1] hash    deliveries:{id}   KEYS[2] zset    due_deliveries
-- ARGV[1] id of the delivery   ARGV[2] host of its receiver
-- ARGV[3] record as it was read, "" for none   ARGV[4] record as it is to be
-- ARGV[5] ms until it is tried, or "" for never   ARGV[6] life of the record, ms
-- returns moved | already | stale
-- appends nothing

local records, due = KEYS[1], KEYS[2]
local delivery, host, before, after = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local wait, life = tonumber(ARGV[5]), ARGV[6]

local problem = check_types({{records, "hash"}, {due, "zset"}})
if problem then return problem end
local record = redis.call("HGET", records, delivery) or ""
if record ~= before and record ~= after then return {"stale"} end
local member = table.concat({host, string.sub(records, #key.deliveries + 1), delivery}, " ")
local is_repeated = record == after
-- What needs no memory comes first, so that the rest runs through at a full Redis.
redis.call("PERSIST", records)
if not is_repeated then redis.call("ZREM", due, member) end
redis.call("HSET", records, delivery, after)
redis.call("PEXPIRE", records, life)
if wait then redis.call("ZADD", due, "NX", clock() + wait, member) end
return {is_repeated and "already" or "moved"}
