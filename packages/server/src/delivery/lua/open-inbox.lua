-- Second step: open the inbox, if our mark of the first step is still there.
--
-- The group begins at 0: with `$` it would skip what was written before its first reader came.
--
-- Replies { 'open' } | { 'overtaken' }.

local inbox, opening = KEYS[1], KEYS[2]
-- args { group: string, mark: string }

if redis.call('EXISTS', inbox) == 1 then
  return { 'open' }
end
if redis.call('GET', opening) ~= args.mark then
  return { 'overtaken' }
end
redis.call('XGROUP', 'CREATE', inbox, args.group, '0', 'MKSTREAM')
redis.call('DEL', opening)
return { 'open' }
