-- Remove results that the session has acknowledged. Replies { 'acknowledged', how many were listed }.

local undelivered = KEYS[1]
local jobs = ARGV[2]

local call = { 'ZREM', undelivered }
for job in string.gmatch(jobs, '%S+') do call[#call + 1] = job end
return { 'acknowledged', redis.call(unpack(call)) }
