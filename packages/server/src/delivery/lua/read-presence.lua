-- Whether an instance has said lately that it is alive. Replies { 'present' } | { 'absent' }.

local presence = KEYS[1]

if redis.call('EXISTS', presence) == 1 then
  return { 'present' }
end
return { 'absent' }
