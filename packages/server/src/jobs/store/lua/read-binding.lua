-- The job a request is bound to. Replies { 'bound', job, body_hash } | { 'absent' }.

local binding = KEYS[1]

local held = redis.call('GET', binding)
if not held then
  return { 'absent' }
end
local job, body_hash = string.match(held, '^(%S+) (%S+)$')
return { 'bound', job, body_hash }
