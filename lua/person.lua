-- A single step that somebody outside of the attempt asks for.

-- `prepare(move, now)` may add fields to the move and returns the options of its commit.
local function ask(id, event, actor, reason, message, prepare)
  local task, problem = read_task(id)
  if not task then return problem end
  local word = verdict(task.state, event)
  if word ~= "moved" then return reply(word, task) end
  local now = clock()
  local move = new_move(task)
  add_step(move, event, actor, reason, message)
  local options = prepare and prepare(move, now) or {}
  problem = commit(move, now, options)
  if problem then return problem end
  if RUNNING[task.state] then hint_worker(task) end
  return reply("moved", task)
end
