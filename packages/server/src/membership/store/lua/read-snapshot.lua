-- Replies { 'found', snapshot } | { 'absent' }.

local snapshot = KEYS[1]

local held = redis.call('GET', snapshot)
if held then
  return { 'found', held }
end
return { 'absent' }
