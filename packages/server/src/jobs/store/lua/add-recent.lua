-- List new jobs, given as words job:tenant. All have the score 0, so that they sort by id, and later ids sort later.
--
-- Trimmed now and then, when the caller gives a length; '' otherwise.
--
-- Replies { 'added' }.

local recent = KEYS[1]
local jobs, length_max, keep_ms = ARGV[2], ARGV[3], ARGV[4]

local call = { 'ZADD', recent }
for job, tenant in string.gmatch(jobs, '([^: ]+):(%S+)') do
  call[#call + 1] = '0'
  call[#call + 1] = job .. ' ' .. tenant
end
redis.call(unpack(call))
if length_max ~= '' then
  redis.call('ZREMRANGEBYRANK', recent, 0, -1 - length_max)
  redis.call('PEXPIRE', recent, keep_ms)
end
return { 'added' }
