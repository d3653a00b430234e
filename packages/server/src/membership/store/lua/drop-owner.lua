-- Take the owner away, if it is still this one: a late close must not remove a newer connection.
--
-- Replies { 'dropped' } | { 'not_ours', holder } | { 'absent' }.

local owner = KEYS[1]
-- args { holder: string }

local held = redis.call('GET', owner)
if not held then
  return { 'absent' }
end
if held ~= args.holder then
  return { 'not_ours', held }
end
redis.call('DEL', owner)
return { 'dropped' }
