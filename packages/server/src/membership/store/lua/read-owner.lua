-- Who holds the connection now. Replies { 'owned', holder } | { 'absent' }.

local owner = KEYS[1]

local held = redis.call('GET', owner)
if held then
  return { 'owned', held }
end
return { 'absent' }
