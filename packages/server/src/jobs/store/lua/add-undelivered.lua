-- Add results that a session has not acknowledged. The set is bounded; the oldest are removed first.
--
-- Replies { 'added', how many were removed }.

local undelivered = KEYS[1]
local jobs, length_max, keep_ms = ARGV[2], ARGV[3], ARGV[4]

local now = tostring(now_ms())
local call = { 'ZADD', undelivered, 'NX' }
for job in string.gmatch(jobs, '%S+') do
  call[#call + 1] = now
  call[#call + 1] = job
end
redis.call(unpack(call))
redis.call('PEXPIRE', undelivered, keep_ms)
if redis.call('ZCARD', undelivered) <= tonumber(length_max) then
  return { 'added', 0 }
end
return { 'added', redis.call('ZREMRANGEBYRANK', undelivered, 0, -1 - length_max) }
