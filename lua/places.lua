-- In which indices a task must stand. Whatever looks for entries that are missing, or for members that do not belong
-- into an index, goes by this one list of them.

local IN_QUEUE, BEHIND_OTHERS = {[State.PENDING] = true}, {[State.BLOCKED] = true}

-- What a step that met a problem put off until later has a score in the near future.
local function latest(at, now)
  return at <= now and now + LOOK_AGAIN or at
end

-- A task that may wait for its time has this in a field that few others need.
local function read_due_at(task)
  local may_wait = WAITING_FOR_TIME[task.state] or BEHIND_OTHERS[task.state]
  return may_wait and whole(redis.call("HGET", key.task .. task.id, "due_at") or "")
end

local function since_entered(name, task)
  return name, task.entered_at, task.entered_at, task.entered_at
end

local function where_listed(task)
  local at = STORED[task.state] + task.entered_at
  return key.listed .. listing_place(task), at, at, at
end

local function when_due(task, terms)
  if task.due_at then return key.due, task.due_at, task.due_at, latest(task.due_at, terms.now) end
end

local function at_deadline(task, terms)
  local left = redis.pcall("PTTL", key.heartbeat .. task.id)
  local longest = math.max(task.lease or 0, terms.lease, LOOK_AGAIN)
  return key.deadlines, terms.now + math.max(left, 0), 0, terms.now + longest
end

local retentions = {} -- by policy: most tasks have the same

local function when_purged(task, terms)
  local retention = retentions[task.policy] or term(task, "retention")
  retentions[task.policy] = retention
  local purge_at = task.entered_at + retention
  return key.retention, purge_at, purge_at, latest(purge_at, terms.now)
end

-- For each sort of index: the states whose tasks may stand in one of it, or false for all, and a function that returns
-- the name of the one that a task must stand in, the right score, the least and the latest that will do; without a name
-- it stands in none. What waits for others stands with each of these as well, in `dependents`.
local PLACES = {
  {false, function(task) return since_entered(key.state .. task.state, task) end},
  {false, function(task) return since_entered(task.owner and key.owned .. task.owner, task) end},
  {false, where_listed},
  {IN_QUEUE, function(task) return since_entered(not task.parked_at and key.pending .. task.queue, task) end},
  {IN_QUEUE, function(task) return since_entered(task.parked_at and parking_place(task.queue, task.type), task) end},
  {WAITING_FOR_TIME, when_due},
  {BEHIND_OTHERS, when_due},
  {RUNNING, at_deadline},
  {FINAL, when_purged},
  {FINAL, function(task, terms) return task.dependents and key.settling, terms.now, 0, terms.now + LOOK_AGAIN end},
}

local places_of = {} -- by state, those of these functions that are for it

local function places_in(state)
  if not places_of[state] then
    local places = {}
    for _, place in ipairs(PLACES) do
      if not place[1] or place[1][state] then places[#places + 1] = place[2] end
    end
    places_of[state] = places
  end
  return places_of[state]
end

-- Calls `found` with each of them, until it returns false. Returns whether it never did.
local function each_place(task, terms, found)
  local places = places_in(task.state)
  for position = 1, #places do
    local name, right, least, most = places[position](task, terms)
    if name and found(name, right, least, most) == false then return false end
  end
  return true
end
