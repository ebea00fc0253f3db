-- Starts an attempt of one given task, whose ticket a stock rq worker popped.
-- uses attempt, claim_next
--
-- KEYS[1] hash    task:{id}
-- ARGV[1] worker id   ARGV[2] token of this claim, hex   ARGV[3] lease, ms
-- ARGV[4] ms that the worker may take beyond a deadline to end an attempt itself
-- returns claimed, fields of the task, id, params, checkpoint; for a task that depends on others also their ids and
--         what they returned, in that order, or how many bytes that is when it is too much
--       | refused | missing, with id, state, attempt, entry
-- appends START

local id = string.sub(KEYS[1], #key.task + 1)
local claim = {worker_id = ARGV[1], token = ARGV[2], lease = ARGV[3], patience = ARGV[4]}

claim.ticket_taken = true
local task, damage = read_task(id)
if not task then return damage end
local again = repeated(claim)
if again then return again end
if task.state ~= State.PENDING then return reply("refused", task) end
return start({task}, claim, clock())
