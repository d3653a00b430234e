-- Make sure that a job without a record never gets one, so that its request may be bound to another.
--
-- Record and binding are different keys, on a Cluster on different servers: a binding may be seen before the
-- record it names. An instance that replaced it then would create two jobs of one request. This mark decides instead.
--
-- Replies { 'void' } | { 'exists' }.

local fsm = KEYS[1]
-- args { expiry_ms: number }

write_now(fsm)
local held = redis.call('HGET', fsm, 'state')
if held and held ~= 'VOID' then
  return { 'exists' }
end
redis.call('HSET', fsm, 'state', 'VOID')
redis.call('PEXPIRE', fsm, args.expiry_ms)
return { 'void' }
