-- Ends a bulk action that still runs. What it has done stays done.
--
-- KEYS[1] hash    bulk:{id}
-- ARGV[1] actor   ARGV[2] life of a record, ms
-- returns moved | already | missing, with id
-- appends nothing

local id = string.sub(KEYS[1], #key.bulk + 1)
local actor, life = ARGV[1], ARGV[2]

local name = key.bulk .. id
local problem = check_type(name, "hash") or check_type(key.bulks_running, "list")
if problem then return problem end
if redis.call("EXISTS", name) == 0 then return {"missing", "id", id} end
if redis.call("HEXISTS", name, "ended_at") == 1 then return {"already", "id", id} end
redis.call("DEL", key.bulk_ids .. id) -- a write that needs no memory lets those after it pass at a full Redis
redis.call("LREM", key.bulks_running, 0, id)
redis.call("HSET", name, "ended_at", clock(), "stopped_by", actor)
redis.call("PEXPIRE", name, life)
return {"moved", "id", id}
