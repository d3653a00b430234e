-- Remove jobs from the recovery index. Replies { 'left', how many were listed }.

local due = KEYS[1]
local jobs = ARGV[2]

local call = { 'ZREM', due }
for job in string.gmatch(jobs, '%S+') do call[#call + 1] = job end
return { 'left', redis.call(unpack(call)) }
