-- When the ticket of a PENDING task counts as lost.

local LONG_HAND_OVER = 6 -- times the hand-over, after which a stock rq worker that holds a ticket counts as dead

-- A stock rq worker pops a ticket some time before it starts the task, and may die in between.
local function is_in_hand_over(list, id)
  return type(redis.pcall("LPOS", list .. key.rq_intermediate_suffix, id)) == "number"
end

-- `since` is when the task was first seen without a ticket, nil for one that was not.
local function is_ticket_lost(since, now, hand_over, on_its_way)
  return since and now - since >= hand_over * (on_its_way and LONG_HAND_OVER or 1)
end
