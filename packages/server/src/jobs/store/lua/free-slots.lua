-- Free slots of one node. Replies { 'freed', how many were in use }.

local reserved = KEYS[1]
local slots = ARGV[2]

local call = { 'ZREM', reserved }
for slot in string.gmatch(slots, '%S+') do call[#call + 1] = slot end
return { 'freed', redis.call(unpack(call)) }
