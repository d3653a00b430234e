-- Remove a job that lost its request to another. A job that does not expire has won, and stays.
--
-- Replies { 'dropped' } | { 'kept' } | { 'absent' }.

local fsm, payload = KEYS[1], KEYS[2]

write_now(fsm)
local at = redis.call('HGET', fsm, 'at')
if not at then
  return { 'absent' }
end
if string.match(at, '^%d+ %d+ %d+ 1') then
  return { 'kept' }
end
redis.call('DEL', fsm, payload)
return { 'dropped' }
