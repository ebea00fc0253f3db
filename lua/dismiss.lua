-- Removes consumers of a listener's group that hold nothing: one that leaves, and those that were silent for long.
--
-- KEYS[1] stream  history   KEYS[2] hash    listener:{group}
-- ARGV[1] group   ARGV[2] silence, ms   ARGV[3] consumer that leaves; empty for none
-- returns number removed
-- appends nothing

local history, account = KEYS[1], KEYS[2]
local group, silence, leaver = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local problem = check_type(history, "stream") or check_type(account, "hash")
if problem then return problem end
local rows = redis.pcall("XINFO", "CONSUMERS", history, group)
if rows.err then return 0 end

-- Consumer -> since when it is silent, and what it holds.
local consumers, now = {}, clock()
for _, row in ipairs(rows) do
  local consumer = {}
  for index = 1, #row, 2 do consumer[row[index]] = row[index + 1] end
  consumers[consumer.name] = {idle = consumer.idle, pending = consumer.pending}
end
local fields = redis.call("HGETALL", account)
for index = 1, #fields, 2 do
  if string.sub(fields[index], 1, #key.beat) == key.beat then
    local name = string.sub(fields[index], #key.beat + 1)
    local consumer = consumers[name] or {idle = math.huge, pending = 0}
    consumer.idle = math.min(consumer.idle, now - (whole(fields[index + 1]) or 0))
    consumers[name] = consumer
  end
end

local removed = 0
for name, consumer in pairs(consumers) do
  -- With its consumer Redis would forget what that one holds.
  if consumer.pending == 0 and (name == leaver or consumer.idle > silence) then
    redis.call("XGROUP", "DELCONSUMER", history, group, name)
    redis.call("HDEL", account, key.beat .. name)
    removed = removed + 1
  end
end
return removed
