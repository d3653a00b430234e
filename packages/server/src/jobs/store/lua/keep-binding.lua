-- From now on a request stays bound to this job for as long as the job's record is kept. A binding that another job
-- holds by now stays as it is.
--
-- Replies { 'kept' } | { 'not_ours' }.

local binding = KEYS[1]
local job, keep_ms = ARGV[2], ARGV[3]

local held = redis.call('GET', binding)
if not held or string.match(held, '^(%S+) ') ~= job then
  return { 'not_ours' }
end
redis.call('PEXPIRE', binding, keep_ms)
return { 'kept' }
