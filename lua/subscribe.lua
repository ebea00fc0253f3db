-- Lets a group begin to read the history, unless there is one of this name.
--
-- KEYS[1] stream  history   KEYS[2] hash    listener:{group}
-- ARGV[1] group   ARGV[2] id of the entry after which it begins; "$" for the last there is, "0-0" for none
-- returns 1 when it is new, else 0
-- appends nothing

local history, account, group, start = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

local problem = check_type(history, "stream") or check_type(account, "hash")
if problem then return problem end
local created = redis.pcall("XGROUP", "CREATE", history, group, start, "MKSTREAM")
if created.err then return string.find(tostring(created.err), "BUSYGROUP", 1, true) and 0 or created end
local stream, reply = {}, redis.call("XINFO", "STREAM", history)
for index = 1, #reply, 2 do stream[reply[index]] = reply[index + 1] end
-- How many entries it has passed over is known at both ends; else `listen` finds it out.
local seen = start == "$" and stream["entries-added"]
if start == "0-0" and stream["entries-added"] then seen = stream["entries-added"] - stream.length end
redis.call("DEL", account)
if seen then redis.call("HSET", account, "seen", seen) end
return 1
