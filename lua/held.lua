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

-- The extension comes first: it needs no memory, and lets the writes after it pass at a full Redis.
local function renew_lease(task, lease)
  if redis.call("PEXPIRE", key.heartbeat .. task.id, lease) == 0 then
    redis.call("SET", key.heartbeat .. task.id, (task.worker_id or "") .. " " .. task.attempt, "PX", lease)
  end
end

local function tell_listeners(task, kind, fields)
  fields.kind, fields.id, fields.type, fields.queue = kind, task.id, task.type, task.queue
  fields.owner, fields.attempt = task.owner, task.attempt
  redis.call("PUBLISH", key.live, cjson.encode(fields))
end
