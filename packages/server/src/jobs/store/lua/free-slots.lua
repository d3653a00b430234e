-- Free slots of one node. Replies { 'freed', how many were in use, slots in use }.

local reserved = KEYS[1]
local slots = ARGV[2]

local call = { 'ZREM', reserved }
for slot in string.gmatch(slots, '%S+') do call[#call + 1] = slot end
local freed = redis.call(unpack(call))
return { 'freed', freed, redis.call('ZCOUNT', reserved, '(' .. now_ms(), '+inf') }
