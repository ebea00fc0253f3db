-- Gives a worker the next task of its queues and starts the attempt, fenced by the worker's token.
-- uses attempt, claim_next
--
-- KEYS[1..n] list rq:queue:{queue}, in the order in which the worker serves them
-- ARGV[1] worker id   ARGV[2] token of this claim, hex   ARGV[3] lease, ms
-- ARGV[4] task types that the worker serves, ",a,b,"; tasks of others at the head of a queue are parked
-- ARGV[5] ms that the worker may take beyond a deadline to end an attempt itself
-- ARGV[6] "1" when the worker runs tasks only, and passes over plain rq jobs; else "0"
-- ARGV[7] types of which it takes several at once, and how many, ",a=2,b=9,"; "" for none
-- returns claimed, fields of the task, id, params, checkpoint; for a task that depends on others also their ids and
--         what they returned, in that order, or how many bytes that is when it is too much
--       | batch, such answers, of tasks that are to be run in this order
--       | plain, queue, id of an rq job that is no task, moved to rq's intermediate list
--       | empty | suspended | more: so many tickets were passed over that it is to be asked again
-- appends START

local worker_id, token, lease, types, patience = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local tasks_only, together = ARGV[6] == "1", ARGV[7]
local queues = {}
for index, list in ipairs(KEYS) do queues[index] = string.sub(list, #key.rq_queue + 1) end

return claim_next(queues, {
  worker_id = worker_id, token = token, lease = lease, patience = patience, types = types, tasks_only = tasks_only,
  together = together,
}, clock())
