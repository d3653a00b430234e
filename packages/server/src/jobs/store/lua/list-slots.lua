-- The slots of one node that are in use. Replies { 'listed', slot, ms until it expires... }.

local reserved = KEYS[1]

local now = now_ms()
local reply = redis.call('ZRANGEBYSCORE', reserved, '(' .. now, '+inf', 'WITHSCORES')
for at = 2, #reply, 2 do reply[at] = tonumber(reply[at]) - now end
table.insert(reply, 1, 'listed')
return reply
