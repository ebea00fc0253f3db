-- A look at one task: what is found about it, and putting that right. Nothing is written before `mend`.

local LONGEST_MESSAGE = 1000 -- bytes of what the history says of a repair

-- A look at one task. `terms`: now, lease (ms), hand_over (ms), queue (whose list of tickets is searched however long
-- it is), indices (in which it may stand besides), shared (in which any may), dependencies_left (for this call),
-- all_listed (whether each task is known to have its entry in the listings by queue and type), were_unlisted (whether
-- this call entered some there)
local function new_look(task, terms)
  local move = new_move(task)
  -- `noted`: a function that notes when something that may pass was first seen
  return {task = task, id = task.id, terms = terms, move = move, found = {}, noted = nil}
end

-- What is wrong: the rule, and in words. `fix` says what puts it right: frees (a function that only removes), adds (one
-- that needs memory), later (a note that makes a later look put it right) or lists (an entry of a listing, where no
-- version before had one: no matter for the history). Without any, nobody can. `whose` is "-" where many tasks
-- tell the same.
local function tell(look, rule, text, fix)
  fix = fix or {}
  look.found[#look.found + 1] = {
    rule = rule, text = text, frees = fix.frees, adds = fix.adds, later = fix.later, lists = fix.lists,
    whose = fix.whose or look.id,
  }
end

local function tell_damage(look, name, expected, fix)
  tell(look, "c", damaged(name, expected, redis.call("TYPE", name).ok).err, fix)
end

-- Tells of an index that is none; `remedy` puts the task into the one that is made anew, where it belongs there. Each
-- task that it concerns tells the same.
local function tell_no_index(look, name, kind, remedy)
  remedy = remedy or {}
  remedy.whose = "-"
  remedy.frees = function() make_room(name, kind) end
  tell_damage(look, name, kind, remedy)
end

-- Whether it is only that a version before had no such listing.
local function is_of_listing(finding)
  return finding.lists and not finding.frees
end

-- Puts right what can be, removals first, and records it. Returns how many findings it dealt with.
local function mend(look, actor)
  local task, texts = look.task, {}
  if #look.found == 0 and not look.noted then return 0 end
  redis.call("PERSIST", key.task .. task.id) -- needs no memory, and lets the writes after it pass at a full Redis
  if look.noted then look.noted() end
  for _, finding in ipairs(look.found) do
    if finding.later then finding.later() end
    if finding.frees then finding.frees() end
    if finding.lists then
      finding.lists()
      look.terms.were_unlisted = true
    end
    if finding.frees or finding.adds then texts[#texts + 1] = finding.text end
  end
  if #texts == 0 or not task.state then return #texts end
  add_step(look.move, Event.REPAIR, actor, Reason.REPAIR, string.sub(table.concat(texts, "; "), 1, LONGEST_MESSAGE))
  record(look.move)
  write_fields(look.move)
  for _, finding in ipairs(look.found) do
    if finding.adds then finding.adds(actor) end
  end
  return #texts
end
