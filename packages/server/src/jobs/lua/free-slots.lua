-- Free slots of one node. Replies { 'freed', how many were in use, slots in use }.

local reserved = KEYS[1]
-- args { slots: string[] }

local freed = redis.call('ZREM', reserved, unpack(args.slots))
return { 'freed', freed, redis.call('ZCOUNT', reserved, '(' .. now_ms(), '+inf') }
