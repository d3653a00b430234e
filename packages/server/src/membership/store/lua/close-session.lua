-- Forget a session. Replies { 'closed' } | { 'absent' }.

local session = KEYS[1]

if redis.call('DEL', session) == 1 then
  return { 'closed' }
end
return { 'absent' }
