-- What must hold around one task, compared with what does. The task's hash is the truth, and all is read in one script:
-- whatever differs from it is damage and not a task in motion.

local FIELD_OF = { -- fields that tasks in other states must not have
  due_at = {[State.SCHEDULED] = true, [State.RETRY_WAITING] = true, [State.BLOCKED] = true},
  worker_id = RUNNING, timeout_at = RUNNING, batched = RUNNING, parked_at = {[State.PENDING] = true},
}
local DEPENDENCIES_AT_MOST = 300 -- looked at in one call, and those of one more task

-- The indices that hold anything, of those that every task may be in. They are looked for once a call, when needed.
local function shared_indices(terms)
  if terms.shared then return terms.shared end
  local names, held = {key.deadlines, key.due, key.retention, key.settling}, {}
  for state in pairs(STORED) do names[#names + 1] = key.state .. state end
  table.sort(names)
  for _, name in ipairs(names) do
    if redis.call("EXISTS", name) == 1 then held[#held + 1] = name end
  end
  terms.shared = held
  return held
end

local function new_terms(now, lease, hand_over, queue, indices)
  return {
    now = now, lease = lease, hand_over = hand_over, queue = queue, indices = indices,
    dependencies_left = DEPENDENCIES_AT_MOST,
    all_listed = redis.pcall("HEXISTS", key.limits, key.listed_since) == 1,
  }
end

-- Indices

local function due_at_of(look)
  local task = look.task
  local due_at = read_due_at(task)
  if due_at or not WAITING_FOR_TIME[task.state] then return due_at end
  local score = redis.pcall("ZSCORE", key.due, task.id)
  local at = type(score) == "string" and whole(score) or look.terms.now
  tell(look, "b", "its due_at is missing", {
    adds = function() redis.call("HSET", key.task .. task.id, "due_at", at) end,
  })
  return at
end

local function must_stand_in(look, name, right, least, most, fix)
  local id, score = look.id, redis.pcall("ZSCORE", name, look.id)
  local remedy = {[fix or "adds"] = function() redis.call("ZADD", name, string.format("%.0f", right), id) end}
  if type(score) == "table" then return tell_no_index(look, name, "zset", remedy) end
  local number = score and tonumber(score)
  if number and number >= least and number <= most then return end
  local text = "it is " .. look.task.state .. " and not in " .. name
  if score then text = string.format("it has the score %s in %s, not %.0f", score, name, right) end
  tell(look, "b", text, remedy)
end

local function must_not_stand_in(look, name)
  local id, score = look.id, redis.pcall("ZSCORE", name, look.id)
  if type(score) == "table" then return tell_no_index(look, name, "zset") end
  if not score then return end
  tell(look, "b", "it is " .. look.task.state .. " and yet in " .. name, {
    frees = function() take_out(name, id) end,
  })
end

-- What lacks its entry may have been stored by a version that had no such index, until every task is known to have one.
local function check_listing(look, name, right)
  local place, names = listing_place(look.task), key.listed_places
  local fix = look.terms.all_listed and "adds" or "lists"
  must_stand_in(look, name, right, right, right, fix)
  local is_named = redis.pcall("SISMEMBER", names, place)
  local remedy = {[fix] = function() redis.call("SADD", names, place) end}
  if type(is_named) == "table" then return tell_no_index(look, names, "set", remedy) end
  if is_named == 1 then return end
  tell(look, "b", "it is " .. look.task.state .. ", and " .. names .. " does not name " .. place, remedy)
end

local function check_indices(look)
  local wanted, task = {}, look.task
  local listing = key.listed .. listing_place(task)
  task.due_at = due_at_of(look)
  each_place(task, look.terms, function(name, right, least, most)
    wanted[name] = true
    if name == listing then check_listing(look, name, right) else must_stand_in(look, name, right, least, most) end
  end)
  local own = {key.pending .. task.queue, parking_place(task.queue, task.type)}
  for _, names in ipairs({shared_indices(look.terms), own, look.terms.indices}) do
    for _, name in ipairs(names) do
      if not wanted[name] then must_not_stand_in(look, name) end
      wanted[name] = true -- looked at once
    end
  end
end

-- That nothing lets a BLOCKED task go on. One that cannot enter its queue stays, and its history must not grow with
-- each look.
local function tell_stuck(look, text, enters_queue, adds)
  local queue = look.task.queue
  local problem = enters_queue and (check_queue_types(queue) or check_entrance_types(queue))
  if problem then return tell(look, "c", problem.err) end
  tell(look, "d", text, {adds = adds})
end

local function check_dependency(look, dependency)
  local task, terms = look.task, look.terms
  if is_noted(dependency, task.id) then
    local since = task.entered_at
    return must_stand_in(look, key.dependents .. dependency, since, since, since)
  end
  local state, damage = state_of(dependency)
  if damage then return tell(look, "c", damage.err) end
  local text = "it waits for " .. dependency .. ", which is " .. (state or "gone") .. " and will not tell it"
  tell_stuck(look, text, state == State.SUCCESS, function(actor)
    if task.state == State.BLOCKED then note_again(task, dependency, actor, terms.now) end
  end)
end

local function check_dependencies(look)
  local task, name = look.task, key.unmet .. look.id
  local damage = check_type(name, "set")
  if damage then return tell(look, "c", damage.err) end
  if task.state ~= State.BLOCKED then
    if redis.call("EXISTS", name) == 0 then return end
    return tell(look, "c", "it is " .. task.state .. " and yet waits for tasks", {
      frees = function() redis.call("DEL", name) end,
    })
  end
  local unmet
  unmet, damage = awaited_by(task)
  look.terms.dependencies_left = look.terms.dependencies_left - (tonumber(task.dependencies) or #(unmet or {}))
  if damage then return tell(look, "c", damage.err) end
  if #unmet > 0 and redis.call("EXISTS", name) == 0 then
    tell(look, "d", "what it waits for is gone from " .. name, {adds = function() restore_unmet(task) end})
  end
  local named = #unmet > 0 and named_by(task)
  for _, dependency in ipairs(unmet) do
    if is_stranger(named, dependency) then
      tell(look, "c", "it waits for " .. dependency .. ", on which it does not depend", {
        frees = function() forget(task, dependency) end,
      })
    else
      check_dependency(look, dependency)
    end
  end
  if #unmet > 0 or redis.call("HEXISTS", key.task .. task.id, "due_at") == 1 then return end
  tell_stuck(look, "it waits for nothing", true, function(actor)
    unblock(task, Event.RELEASE, actor, "it waits for no task any more", look.terms.now)
  end)
end

local function check_queue(look)
  local task = look.task
  if task.state ~= State.PENDING then return end
  if redis.call("HEXISTS", key.queues, task.queue) == 0 then
    tell(look, "b", "it is PENDING and its queue is not in " .. key.queues, {
      adds = function() redis.call("HSETNX", key.queues, task.queue, "running") end,
    })
  end
  if not task.parked_at then return end
  local types = key.parked_types .. task.queue
  local named = redis.pcall("SISMEMBER", types, task.type)
  local remedy = {adds = function() redis.call("SADD", types, task.type) end}
  if type(named) == "table" then return tell_no_index(look, types, "set", remedy) end
  if named == 0 then tell(look, "d", "it is parked, and " .. types .. " does not name its type", remedy) end
end

-- Fields, lease and values

local function check_fields(look)
  local task = look.task
  local fields = {"due_at", "worker_id", "timeout_at", "batched", "parked_at"}
  local values = redis.call("HMGET", key.task .. task.id, unpack(fields))
  for position, field in ipairs(fields) do
    if values[position] and not FIELD_OF[field][task.state] then
      tell(look, "b", "it is " .. task.state .. " and its " .. field .. " is " .. values[position], {
        frees = function() redis.call("HDEL", key.task .. task.id, field) end,
      })
    end
  end
  if not RUNNING[task.state] then return end
  if not task.timeout_at then
    local at = (task.started_at or task.entered_at) + term(task, "timeout")
    tell(look, "b", "its timeout_at is missing", {
      adds = function() redis.call("HSET", key.task .. task.id, "timeout_at", at) end,
    })
  end
  if not task.worker_id then tell(look, "b", "nothing says which worker holds it") end
end

local function check_lease(look)
  local task, name, lease = look.task, key.heartbeat .. look.id, look.terms.lease
  local value = redis.pcall("GET", name)
  if not value then return end -- over: that is for the sweep to judge
  if type(value) == "table" then return tell_damage(look, name, "string") end
  if not RUNNING[task.state] then
    return tell(look, "c", "it is " .. task.state .. " and has a lease", {
      frees = function() redis.call("DEL", name) end,
    })
  end
  local right = (task.worker_id or "") .. " " .. task.attempt
  if task.worker_id and value ~= right then
    tell(look, "c", "its lease is that of " .. value .. ", not of " .. right, {
      adds = function() redis.call("SET", name, right, "KEEPTTL") end,
    })
  end
  if redis.call("PTTL", name) == -1 then
    tell(look, "g", "its lease has no end", {frees = function() redis.call("PEXPIRE", name, lease) end})
  end
end

local function needs_value(task, kind)
  return kind == "params" or kind == "result" and task.state == State.SUCCESS
    or kind == "depends_on" and task.dependencies or kind == "secrets" and task.secrets
end

local function check_value(look, kind)
  local name = key[kind] .. look.id
  local left = redis.call("PTTL", name)
  if left >= 0 then
    tell(look, "g", name .. " would expire", {frees = function() redis.call("PERSIST", name) end})
  elseif left == -2 and needs_value(look.task, kind) then
    tell(look, "a", "its " .. kind .. " is gone from " .. name)
  end
  -- Of `unmet` the look at dependencies tells.
  local damage = left ~= -2 and kind ~= "unmet" and check_type(name, VALUE_TYPES[kind] or "string")
  if not damage then return end
  if kind == "dependents" then return tell_no_index(look, name, "zset") end
  tell(look, "c", damage.err)
end

local function check_values(look)
  check_value(look, "task")
  for _, kind in ipairs(VALUES) do check_value(look, kind) end
  local tombstone = key.tombstone .. look.id
  if redis.call("EXISTS", tombstone) == 1 then
    tell(look, "c", "it lives and has a tombstone", {frees = function() redis.call("DEL", tombstone) end})
  end
end

local function examine(task, terms)
  local look = new_look(task, terms)
  check_indices(look)
  check_queue(look)
  check_dependencies(look)
  check_tickets(look)
  check_fields(look)
  check_lease(look)
  check_values(look)
  return look
end

-- Puts right what is wrong around a task, and adds it to what is `told`. Returns whether anything was put right.
local function put_in_order(task, terms, actor, told)
  local look = examine(task, terms)
  for _, finding in ipairs(look.found) do
    local is_damage = not (finding.later or is_of_listing(finding))
    if is_damage then told[#told + 1] = key.task .. task.id .. ": " .. finding.text end
  end
  return mend(look, actor) > 0
end

-- What is left of a task whose hash is gone: there is nothing to put it right from, so it can only be removed.
local function examine_remains(id, terms)
  local look = new_look({id = id}, terms)
  for _, names in ipairs({shared_indices(terms), terms.indices}) do
    for _, name in ipairs(names) do
      if type(redis.pcall("ZSCORE", name, id)) == "string" then
        tell(look, "c", name, {frees = function() set_aside(name, id, {"missing"}) end})
      end
    end
  end
  for _, kind in ipairs({"heartbeat", unpack(VALUES)}) do
    local name = key[kind] .. id
    if redis.call("EXISTS", name) == 1 then
      tell(look, "c", name, {frees = function() redis.call("UNLINK", name) end})
    end
  end
  if is_left_job(id) then
    tell(look, "c", key.rq_job .. id, {frees = function() redis.call("DEL", key.rq_job .. id) end})
  end
  local list = key.rq_queue .. terms.queue
  if terms.queue ~= "" and is_orphan(list, id) then
    tell(look, "c", list, {frees = function()
      redis.call("LREM", list, 0, id)
      redis.call("DEL", key.rq_job .. id)
    end})
  end
  return look
end
