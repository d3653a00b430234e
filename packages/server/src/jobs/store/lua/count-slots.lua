-- How many slots of one node are in use. Replies { 'counted', slots }.

local reserved = KEYS[1]

return { 'counted', redis.call('ZCOUNT', reserved, '(' .. now_ms(), '+inf') }
