-- Hands out the callbacks whose time has come, under a lease: one that is not revised within it is handed out again.
-- No host and no owner gets more than its share at a time, and hosts take turns, so that one that hangs, and one whose
-- hosts all hang, holds up nobody else.
-- uses due
--
-- KEYS[1] zset    due_receivers
-- ARGV[1] deliveries handed out, at most   ARGV[2] lease, ms
-- ARGV[3] deliveries to one host at a time, at most   ARGV[4] deliveries of one owner at a time, at most
-- ARGV[5] how many are under way to each host, JSON object   ARGV[6] the same of each owner, "" for nobody's
-- returns the time in ms, what was wrong with others, then for each delivery its host, its task and id, its record, or
-- "" where that is gone
-- appends nothing

local receivers, limit, lease = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local share, owners_share = tonumber(ARGV[3]), tonumber(ARGV[4])
local to_host, of_owner = cjson.decode(ARGV[5]), cjson.decode(ARGV[6])

local HOSTS_AT_MOST = 100 -- looked at in one call: more than there can be hosts that have their share
local LOOKS_AT_MOST = 500 -- at deliveries, in one call
local LOOKS_AT_HOST = 50 -- of one host: the first may be of owners that have their share

local now, handed, problems, looks = clock(), {}, {}, 0

-- Returns whose delivery it is, as far as that can be read.
local function owner_of(record)
  local is_json, delivery = pcall(cjson.decode, record)
  local entry = is_json and type(delivery) == "table" and delivery.entry
  return type(entry) == "table" and type(entry.owner) == "string" and entry.owner or ""
end

-- Returns whether it was handed out.
local function hand_out(host, member)
  local name = key.due_deliveries .. host
  local id, delivery = string.match(member, "^(%S+) (%S+)$")
  local record = id and redis.pcall("HGET", key.deliveries .. id, delivery)
  if not id or (record and type(record) ~= "string") then
    redis.call("ZREM", name, member)
    local damage = id and check_type(key.deliveries .. id, "hash") or damaged(name, "deliveries of tasks", member)
    quarantine(name, id or member, damage)
    problems[#problems + 1] = damage.err
    return false
  end
  local owner = owner_of(record or "")
  if (of_owner[owner] or 0) >= owners_share then return false end
  of_owner[owner] = (of_owner[owner] or 0) + 1
  redis.call("ZADD", name, now + lease, member)
  handed[#handed + 1] = {host, member, record or ""}
  return true
end

local function serve(host)
  local most = math.min(limit - #handed, share - (to_host[host] or 0))
  if most <= 0 or looks >= LOOKS_AT_MOST then return end
  local name = key.due_deliveries .. host
  local problem = check_type(name, "zset")
  if problem then
    redis.call("ZREM", receivers, host)
    problems[#problems + 1] = problem.err
    return
  end
  for _, member in ipairs(redis.call("ZRANGEBYSCORE", name, "-inf", now, "LIMIT", 0, LOOKS_AT_HOST)) do
    if most == 0 then break end
    looks = looks + 1
    if hand_out(host, member) then most = most - 1 end
  end
  note_turn(receivers, host, now, true)
end

local problem = check_type(receivers, "zset")
if problem then return problem end
local hosts = redis.call("ZRANGEBYSCORE", receivers, "-inf", now, "LIMIT", 0, HOSTS_AT_MOST)
-- Needs no memory, and lets what follows run through at a full Redis.
if #hosts > 0 then redis.call("PERSIST", receivers) end
for _, host in ipairs(hosts) do serve(host) end
return {now, problems, unpack(handed)}
