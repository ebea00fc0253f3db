-- Hands a listener what it delivers next: first what a dead one of its group left, then what is new.
-- What its subscription does not want is done with at once.
--
-- KEYS[1] stream  history   KEYS[2] hash    listener:{group}
-- ARGV[1] group   ARGV[2] consumer   ARGV[3] entries looked at, at most
-- ARGV[4] lease, ms: an entry that its consumer did not renew for so long is another's
-- ARGV[5] kind of value that a task must have to be of interest, or ""
-- ARGV[6..n] events, and states in which a task comes to rest
-- returns missing, when there is no such group; caught_up | more, then the end of the history, then for each entry
--   its id, how often it was handed out, its fields
-- appends nothing

local history, account = KEYS[1], KEYS[2]
local group, consumer, limit, lease, needed = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local wanted = {}
for index = 6, #ARGV do wanted[ARGV[index]] = true end

local function named(flat)
  local values = {}
  for index = 1, #flat, 2 do values[flat[index]] = flat[index + 1] end
  return values
end

-- Whether the second of two entries is a further step of the same move, and not what somebody asked for later: a retry
-- by the policy, the way back to the queue of a task that was handed back, the end of one submitted behind a failure.
local function is_of_same_move(entry, after)
  if after.task ~= entry.task or after.from ~= entry.to then return false end
  return after.actor == BY_POLICY
    or entry.event == Event.SUSPEND and entry.from == State.PROCESSING
    or entry.event == Event.SUBMIT and after.event == Event.CANCEL and after.reason == Reason.DEPENDENCY
end

-- A task comes to rest where a move ends. The entries of a move stand next to each other, since one script appends
-- them, and a purge removes none before those of the steps that led to it.
local function passes_through(id, entry)
  local following = redis.call("XRANGE", history, "(" .. id, "+", "COUNT", 1)[1]
  return following and is_of_same_move(entry, named(following[2]))
end

local function is_wanted(id, entry)
  local is_named = wanted[entry.event]
    or wanted[entry.to] and entry.from ~= entry.to and not passes_through(id, entry)
  return is_named and (needed == "" or redis.call("EXISTS", key[needed] .. (entry.task or "")) == 1)
end

local missed, handed = 0, {}

local function hand_out(id, deliveries, fields)
  if is_wanted(id, named(fields)) then
    handed[#handed + 1] = {id, deliveries, fields}
  else
    redis.call("XACK", history, group, id)
  end
end

-- Not counted as handed out once more: only a handler that begins is a try.
local function take_over(id, deliveries)
  local entry = redis.call("XRANGE", history, id, id)[1]
  if entry then
    redis.call("XCLAIM", history, group, consumer, 0, id, "JUSTID")
    hand_out(id, deliveries, entry[2])
  else
    redis.call("XACK", history, group, id) -- its task was purged meanwhile
    missed = missed + 1
  end
end

local function read_new(most)
  if most == 0 then return 0 end
  local read = redis.call("XREADGROUP", "GROUP", group, consumer, "COUNT", most, "STREAMS", history, ">")
  local stream = read and (type(read[1]) == "table" and read[1] or read) -- without the outer list in fakeredis
  local entries = stream and stream[2] or {}
  for _, entry in ipairs(entries) do hand_out(entry[1], 1, entry[2]) end
  return #entries
end

-- Who is at the end has seen every entry there ever was, but for those that a purge removed before.
local function settle(seen, is_at_end, added)
  if is_at_end and added then
    if seen then missed = missed + math.max(0, added - seen) end
    seen = added
  end
  return seen
end

local problem = check_type(history, "stream") or check_type(account, "hash")
if problem then return problem end
local counts = redis.call("HMGET", account, "seen", "missed")
for index, field in ipairs({"seen", "missed"}) do
  local count = counts[index]
  if count and not whole(count) then return damaged(account .. " field " .. field, "a whole number", count) end
end
local left = redis.pcall("XPENDING", history, group, "IDLE", lease, "-", "+", limit)
if left.err then return string.find(tostring(left.err), "NOGROUP", 1, true) and {"missing"} or left end
for _, row in ipairs(left) do take_over(row[1], row[4]) end
local most = limit - #left
local number = read_new(most)
local stream, seen = named(redis.call("XINFO", "STREAM", history)), counts[1] and whole(counts[1])
local is_at_end = number < most
local now_seen = settle(seen and seen + number, is_at_end, stream["entries-added"])
-- Redis 7.0 notes a consumer only when it gets something, so each tells by itself that it is alive.
redis.call("HSET", account, key.beat .. consumer, clock())
if now_seen and now_seen ~= seen then redis.call("HSET", account, "seen", now_seen) end
if missed > 0 then redis.call("HINCRBY", account, "missed", missed) end
return {is_at_end and "caught_up" or "more", stream["last-generated-id"], unpack(handed)}
