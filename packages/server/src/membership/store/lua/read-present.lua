-- Replies { 'present', boot_id, epoch } | { 'absent' }.

local presence = KEYS[1]

local held = redis.call('GET', presence)
if not held then
  return { 'absent' }
end
local boot, epoch = string.match(held, '^(.*):(%d+)$')
return { 'present', boot, epoch }
