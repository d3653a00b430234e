-- Let the binding of a request expire with the record of its job. A binding to another job stays as it is.
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
