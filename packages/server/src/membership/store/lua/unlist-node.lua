-- Take nodes off the list of all. Replies { 'unlisted' }.

local all = KEYS[1]
-- args { nodes: string[] }

redis.call('SREM', all, unpack(args.nodes))
return { 'unlisted' }
