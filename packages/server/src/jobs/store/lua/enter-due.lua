-- Set when jobs are overdue, `in_ms` from now. With `only_listed` a job that has left the index stays out.
--
-- Replies { 'entered' }.

local due = KEYS[1]
local jobs, in_ms, only_listed = ARGV[2], ARGV[3], ARGV[4]

local now = now_ms()
local call = { 'ZADD', due }
if only_listed == '1' then call[3] = 'XX' end
-- Most jobs of a batch are due at one time, and numbers are slow to write.
local last_in, at
local next_in = string.gmatch(in_ms, '%d+')
for job in string.gmatch(jobs, '%S+') do
  local delay = next_in()
  if delay ~= last_in then last_in, at = delay, tostring(now + delay) end
  call[#call + 1] = at
  call[#call + 1] = job
end
redis.call(unpack(call))
return { 'entered' }
