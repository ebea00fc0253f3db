-- Puts a plain rq job that was not begun back to the head of its queue.
--
-- KEYS[1] list    rq:queue:{queue}
-- ARGV[1] id of the rq job
-- returns moved | already
-- appends nothing

local list, id = KEYS[1], ARGV[1]

local intermediate = list .. key.rq_intermediate_suffix
local problem = check_type(list, "list") or check_type(intermediate, "list")
if problem then return problem end
if redis.call("LREM", intermediate, 1, id) == 0 then return {"already"} end
redis.call("LPUSH", list, id)
return {"moved"}
