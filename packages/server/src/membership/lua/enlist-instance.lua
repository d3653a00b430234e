-- Enter an instance in the list of all whose inbox somebody must read. Replies { 'enlisted' }.

local all = KEYS[1]
-- args { instance_id: string, entry: string }

redis.call('HSET', all, args.instance_id, args.entry)
return { 'enlisted' }
