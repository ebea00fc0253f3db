-- When the deliveries to a host are due: the host stands in an index over all by the time of its next one.

-- Puts a host where its next delivery is due, or takes it out when nothing waits for it. One that was `served` goes
-- behind the others that are due, and one that is due already keeps its turn.
local function note_turn(receivers, host, now, served)
  local first = redis.call("ZRANGE", key.due_deliveries .. host, 0, 0, "WITHSCORES")
  if not first[1] then return redis.call("ZREM", receivers, host) end
  local at, turn = tonumber(first[2]), tonumber(redis.call("ZSCORE", receivers, host) or now + 1)
  if served then
    at = math.max(at, now)
  elseif turn <= now and at <= now then
    return
  end
  redis.call("ZADD", receivers, at, host)
end
