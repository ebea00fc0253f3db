-- Hands out the callbacks whose time has come, under a lease: one that is not revised within it is handed out again.
-- No host gets more than its share at a time, and hosts take turns, so that one that hangs holds up nobody else.
-- uses due
--
-- KEYS[1] zset    due_receivers
-- ARGV[1] deliveries handed out, at most   ARGV[2] lease, ms   ARGV[3] deliveries to one host at a time, at most
-- ARGV[4..n] a host to which deliveries are under way, then their number
-- returns the time in ms, what was wrong with others, then for each delivery its host, its task and id, its record, or
-- "" where that is gone
-- appends nothing

local receivers, limit, lease, share = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local under_way = {}
for index = 4, #ARGV, 2 do under_way[ARGV[index]] = tonumber(ARGV[index + 1]) end

local HOSTS_AT_MOST = 100 -- looked at in one call: more than there can be hosts that have their share

local now, handed, problems = clock(), {}, {}

local function hand_out(host, member)
  local name = key.due_deliveries .. host
  local id, delivery = string.match(member, "^(%S+) (%S+)$")
  local record = id and redis.pcall("HGET", key.deliveries .. id, delivery)
  if id and (not record or type(record) == "string") then
    redis.call("ZADD", name, now + lease, member)
    handed[#handed + 1] = {host, member, record or ""}
  else
    redis.call("ZREM", name, member)
    quarantine(name, id or member, damaged(name, "deliveries that have a record", member))
    problems[#problems + 1] = damaged(name, "deliveries that have a record", member).err
  end
end

local function serve(host)
  local most = math.min(limit - #handed, share - (under_way[host] or 0))
  if most <= 0 then return end
  local name = key.due_deliveries .. host
  local problem = check_types({{name, "zset"}})
  if problem then
    redis.call("ZREM", receivers, host)
    problems[#problems + 1] = problem.err
    return
  end
  for _, member in ipairs(redis.call("ZRANGEBYSCORE", name, "-inf", now, "LIMIT", 0, most)) do
    hand_out(host, member)
  end
  note_turn(receivers, host, now, true)
end

local problem = check_types({{receivers, "zset"}})
if problem then return problem end
local hosts = redis.call("ZRANGEBYSCORE", receivers, "-inf", now, "LIMIT", 0, HOSTS_AT_MOST)
-- Needs no memory, and lets what follows run through at a full Redis.
if #hosts > 0 then redis.call("PERSIST", receivers) end
for _, host in ipairs(hosts) do serve(host) end
return {now, problems, unpack(handed)}
