-- A single step that somebody outside of the attempt asks for.

-- What some events change beside the state: each adds to the move, and may return options of its commit.
local CHANGES = {
  [Event.CANCEL] = function(move)
    if move.state == State.CANCELLED then move.delete = {"due_at"} end
  end,
  [Event.PAUSE] = function(move)
    if move.state == State.PAUSED then move.delete = {"due_at"} end
  end,
  -- Another life, due at once, with fresh budgets.
  [Event.RETRY] = function(move, now)
    set(move, "due_at", now)
    move.delete = {"failures", "timeouts", "losses"}
    return {due_at = now}
  end,
}

local function ask(id, event, actor, reason, message)
  local task, problem = read_task(id)
  if not task then return problem end
  local word = verdict(task.state, event)
  if word ~= "moved" then return reply(word, task) end
  local now = clock()
  local move = new_move(task)
  add_step(move, event, actor, reason, message)
  local change = CHANGES[event]
  problem = commit(move, now, change and change(move, now) or {})
  if problem then return problem end
  if task.state == State.CANCELLED then redis.call("DEL", key.checkpoint .. id) end
  if RUNNING[task.state] then hint_worker(task) end
  return reply("moved", task)
end
