-- A job's record, and on demand its payload (p), its result (r) and its timeline (t), a field and for jobs of 0.1 a list. An absent text is ''. With (e) the
-- result comes only if the job failed and the result is short: a list shows errors, not bodies.
--
-- Replies { 'found', payload, result, entries, entry..., field, value... } | { 'absent' }.

local fsm, payload, result, timeline = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local wanted = ARGV[2]

write_now(fsm)
local fields = redis.call('HGETALL', fsm)
if #fields <= 2 then
  return { 'absent' } -- or void: then its state is all there is
end
local ERROR_BYTES_MAX = 8192

local function failure()
  local ended = string.match(redis.call('HGET', fsm, 'at') or '', '%S+$')
  if not ended or ended == '-' or string.find(ended, ':succeeded', 1, true) then return '' end
  return redis.call('STRLEN', result) <= ERROR_BYTES_MAX and redis.call('GET', result) or ''
end

local entries = string.find(wanted, 't') and redis.call('LRANGE', timeline, 0, -1) or {}
local reply = { 'found',
  string.find(wanted, 'p') and redis.call('GET', payload) or '',
  string.find(wanted, 'r') and redis.call('GET', result) or string.find(wanted, 'e') and failure() or '',
  #entries }
for _, entry in ipairs(entries) do reply[#reply + 1] = entry end
for index = 1, #fields, 2 do
  if fields[index] ~= 'timeline' or string.find(wanted, 't') then
    reply[#reply + 1] = fields[index]
    reply[#reply + 1] = fields[index + 1]
  end
end
return reply
