-- Notes a worker over HTTP: what it asks a queue for, or that it is at work. A claim is refused to one that bears the
-- name of a worker with a connection, and for types that nobody published.
--
-- KEYS[1] string  http_worker:{worker}
-- ARGV[1] queue that it asks, "" for one that is at work   ARGV[2] how long that holds, ms
-- ARGV[3] for how long one that fell silent is known, ms   ARGV[4] life of the index after the last note, ms
-- ARGV[5..n] types that it asks for
-- returns noted | unknown | taken | unpublished, with the types
-- appends nothing

local name = KEYS[1]
local queue, lasts, known, life = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local asks, now, types = queue ~= "", clock(), {}
for number = 5, #ARGV do types[#types + 1] = ARGV[number] end
local worker = string.sub(name, #key.http_worker + 1)

-- Returns why it may not claim, if it may not.
local function refusal()
  local dates, damage = fetch("hash", "HMGET", key.rq_worker .. worker, "birth", "death")
  if damage then return damage end
  if dates[1] and not dates[2] then return {"taken"} end
  local published, missing = redis.call("HMGET", key.types, unpack(types)), {}
  for number, kind in ipairs(types) do
    if not published[number] then missing[#missing + 1] = kind end
  end
  if #missing > 0 then return {"unpublished", unpack(missing)} end
end

-- Returns the record that a text is; nil for none, and for one that cannot be read.
local function parsed(text)
  local is_json, record = pcall(cjson.decode, text)
  local is_record = is_json and type(record) == "table" and type(record.since) == "number"
  if is_record and type(record.wishes) == "table" then return record end
end

-- Returns what it asked for and still may wait for, by queue.
local function listening(wishes)
  local found = {}
  for queue, wish in pairs(wishes) do
    local holds = type(wish) == "table" and type(wish.types) == "table" and (tonumber(wish["until"]) or 0) >= now
    if holds then found[queue] = wish end
  end
  return found
end

local problem = check_type(key.http_workers, "zset") or check_type(key.types, "hash")
if problem then return problem end
local text, damage = fetch("string", "GET", name)
if damage then return damage end
local refused = asks and refusal()
if refused then return refused end
local record = parsed(text or "") or (asks and {since = now, wishes = {}})
if not record then return {"unknown"} end

local wishes, last = listening(record.wishes), now
if asks then
  wishes[queue] = {["until"] = now + lasts, types = types}
else
  for _, wish in pairs(wishes) do wish["until"] = now + lasts end
end
if next(wishes) then record.wishes = wishes end
for _, wish in pairs(wishes) do last = math.max(last, wish["until"]) end
record.beat_at, record.is_busy = now, not asks
redis.call("ZREMRANGEBYSCORE", key.http_workers, 0, now) -- needs no memory, and lets what follows run at a full Redis
redis.call("SET", name, cjson.encode(record), "PX", last - now + known)
redis.call("ZADD", key.http_workers, last + known, worker)
redis.call("PEXPIRE", key.http_workers, life)
return {"noted"}
