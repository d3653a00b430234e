-- Remove a job that lost its request to another. One that was kept for good has won, and stays.
--
-- Replies { 'dropped' } | { 'kept' } | { 'absent' }.

local fsm, payload = KEYS[1], KEYS[2]

local held = redis.call('HMGET', fsm, 'state', 'persisted')
if not held[1] or held[1] == 'VOID' then
  return { 'absent' }
end
if held[2] then
  return { 'kept' }
end
redis.call('DEL', fsm, payload)
return { 'dropped' }
