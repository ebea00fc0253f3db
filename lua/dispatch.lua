-- Hands out the callbacks whose time has come, under a lease: one that is not revised within it is handed out again.
-- No host gets more than its share at a time, so that one that hangs holds up nobody else.
--
-- KEYS[1] zset    due_deliveries
-- ARGV[1] deliveries handed out, at most   ARGV[2] lease, ms   ARGV[3] deliveries to one host at a time, at most
-- ARGV[4] ms after which one whose host has its share is looked at again
-- ARGV[5..n] a host to which deliveries are under way, then their number
-- returns whether there may be more to do, the time in ms, what was wrong with others, then for each delivery its
--   member and its record
-- appends nothing

local due, limit, lease, share, pause = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local under_way = {}
for index = 5, #ARGV, 2 do under_way[ARGV[index]] = tonumber(ARGV[index + 1]) end

local LOOKED_AT = 100

local handed, problems = {}, {}

local function hand_out(member, host, id, delivery, now)
  local name = key.deliveries .. id
  local record = redis.pcall("HGET", name, delivery)
  if type(record) == "string" then
    redis.call("ZADD", due, now + lease, member)
    under_way[host] = (under_way[host] or 0) + 1
    handed[#handed + 1] = {member, record}
  else
    redis.call("ZREM", due, member)
    problems[#problems + 1] = record and damaged(name, "hash", redis.call("TYPE", name).ok).err
      or damaged(due, "deliveries that have a record", member).err
  end
end

local function look_at(member, now)
  local host, id, delivery = string.match(member, "^(%S+) (%S+) (%S+)$")
  if not host then
    redis.call("ZREM", due, member)
    problems[#problems + 1] = damaged(due, "host, task and delivery", member).err
  elseif (under_way[host] or 0) >= share then
    redis.call("ZADD", due, now + tonumber(pause), member)
  else
    hand_out(member, host, id, delivery, now)
  end
end

local problem = check_types({{due, "zset"}})
if problem then return problem end
local now = clock()
local members = redis.call("ZRANGEBYSCORE", due, "-inf", now, "LIMIT", 0, LOOKED_AT)
-- Needs no memory, and lets what follows run through at a full Redis.
if #members > 0 then redis.call("PERSIST", due) end
for _, member in ipairs(members) do
  if #handed >= limit then break end
  look_at(member, now)
end
return {#members == LOOKED_AT and 1 or 0, now, problems, unpack(handed)}
