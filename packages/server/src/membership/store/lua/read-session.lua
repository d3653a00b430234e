-- Replies { 'found', tenant, current_turn_id, token } | { 'absent' }; no turn and no token are the empty string.

local session = KEYS[1]

local held = redis.call('HMGET', session, 'tenant', 'current_turn_id', 'token')
if not held[1] then
  return { 'absent' }
end
return { 'found', held[1], held[2] or '', held[3] or '' }
