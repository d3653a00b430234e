-- Enter nodes in the list of all. Replies { 'listed' }.

local all = KEYS[1]
-- args { nodes: string[] }

redis.call('SADD', all, unpack(args.nodes))
return { 'listed' }
