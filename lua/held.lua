-- What a worker writes about the attempt it holds, between START and the end.

-- Returns the task when this attempt holds it and `event` is legal, else nil and the reply.
local function read_held(id, attempt, token, event)
  local task, problem = read_task(id)
  if not task then return nil, problem end
  local refusal = refuse_stranger(task, attempt, token)
  if refusal then return nil, refusal end
  local word = verdict(task.state, event)
  if word ~= "moved" then return nil, reply(word, task) end
  return task
end

local function tell_listeners(task, kind, fields)
  fields.kind, fields.id, fields.type, fields.queue = kind, task.id, task.type, task.queue
  fields.owner, fields.attempt = task.owner, task.attempt
  redis.call("PUBLISH", key.live, cjson.encode(fields))
end
