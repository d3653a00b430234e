-- Where a job is: enough to tell whether what a node says it runs is still wanted.
--
-- Replies { 'found', state, attempt_id, node_id } | { 'absent' }.

local fsm = KEYS[1]

local held = redis.call('HMGET', fsm, 'state', 'attempt_id', 'node_id')
if not held[1] or held[1] == 'VOID' then
  return { 'absent' }
end
return { 'found', held[1], tonumber(held[2]), held[3] }
