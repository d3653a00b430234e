-- The services a node is left out for now. Replies { 'unavailable', service... }.

local unavailable = KEYS[1]

local reply = redis.call('ZRANGEBYSCORE', unavailable, '(' .. now_ms(), '+inf')
table.insert(reply, 1, 'unavailable')
return reply
