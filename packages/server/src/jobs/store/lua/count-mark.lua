-- Count a mark up. It has an id, given by the instance that made it: another id, or a count that is not higher than before, shows
-- that the store was emptied or brought back an earlier state.
--
-- Replies { id, count }.

local mark = KEYS[1]
-- args { id: string }

redis.call('HSETNX', mark, 'id', args.id)
local count = redis.call('HINCRBY', mark, 'count', 1)
return { redis.call('HGET', mark, 'id'), count }
