-- Compares the ledger with the tasks that are here, and books what is missing as lost.
--
-- ARGV[1] "1" to put the ledger right, else only to tell
-- returns number of tasks here, 1 when the ledger was put right or else 0, submitted, purged, lost as they are now
-- appends nothing

local mends = ARGV[1] == "1"

local problem = check_ledger("submitted") or check_ledger("purged") or check_ledger("lost")
if problem then return problem end
local here = 0
for state in pairs(STORED) do
  problem = check_type(key.state .. state, "zset")
  if problem then return problem end
  here = here + redis.call("ZCARD", key.state .. state)
end
local counters = redis.call("HMGET", key.ledger, "submitted", "purged", "lost")
local submitted, purged, lost = tonumber(counters[1] or 0), tonumber(counters[2] or 0), tonumber(counters[3] or 0)
local missing = submitted - here - purged - lost
if missing == 0 or not mends then return {here, 0, submitted, purged, lost} end
-- More than were ever submitted: the ledger itself was lost. Fewer: the tasks were.
if missing < 0 then submitted = submitted - missing else lost = lost + missing end
redis.call("PERSIST", key.ledger) -- needs no memory, and lets the write after it pass at a full Redis
redis.call("HSET", key.ledger, "submitted", submitted, "lost", lost)
return {here, 1, submitted, purged, lost}
