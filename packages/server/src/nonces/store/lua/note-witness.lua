-- Keeps the newest position of the database that any instance has seen, and answers it. Ranks compare as text; an
-- empty one only reads.
--
-- Replies { 'position', position } | { 'absent' }.

local witness = KEYS[1]
-- args { rank: string, position: string }

local kept = redis.call('HMGET', witness, 'rank', 'position')
if args.rank ~= '' and (not kept[1] or args.rank > kept[1]) then
  redis.call('HSET', witness, 'rank', args.rank, 'position', args.position)
  return { 'position', args.position }
end
if not kept[1] then
  return { 'absent' }
end
return { 'position', kept[2] }
