-- A job's record, and on demand its payload, its result and its timeline. An absent text is ''.
--
-- Replies { 'found', payload, result, entries, entry..., field, value... } | { 'absent' }.

local fsm, payload, result, timeline = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- args { payload: boolean, result: boolean, timeline: boolean }

local fields = redis.call('HGETALL', fsm)
if #fields == 0 or fields[2] == 'VOID' then
  return { 'absent' }
end
local entries = args.timeline and redis.call('LRANGE', timeline, 0, -1) or {}
local reply = { 'found',
  args.payload and redis.call('GET', payload) or '',
  args.result and redis.call('GET', result) or '',
  #entries }
for _, entry in ipairs(entries) do reply[#reply + 1] = entry end
for _, text in ipairs(fields) do reply[#reply + 1] = text end
return reply
