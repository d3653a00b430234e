-- Replies { 'found', tenant, current_turn_id } | { 'absent' }; no turn is the empty string.

local session = KEYS[1]

local held = redis.call('HMGET', session, 'tenant', 'current_turn_id')
if not held[1] then
  return { 'absent' }
end
return { 'found', held[1], held[2] or '' }
