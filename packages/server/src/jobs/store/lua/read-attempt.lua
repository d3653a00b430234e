-- The state of a job: enough to compare it with an attempt that a node runs.
--
-- Replies { 'found', state, at } | { 'absent' }.

local fsm = KEYS[1]

write_now(fsm)
local held = redis.call('HMGET', fsm, 'state', 'at')
if not held[2] then
  return { 'absent' }
end
return { 'found', held[1], held[2] }
