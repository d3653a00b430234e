-- Remove the inbox and the dead letters of an instance, if both are empty. After that a sender gets
-- 'closed' and opens it again, which also puts the instance back on the list.
--
-- Replies { 'closed' } | { 'kept', messages, letters }.

local inbox, dlq, opening = KEYS[1], KEYS[2], KEYS[3]

local messages, letters = redis.call('XLEN', inbox), redis.call('XLEN', dlq)
if messages > 0 or letters > 0 then
  return { 'kept', messages, letters }
end
redis.call('DEL', inbox, dlq, opening)
return { 'closed' }
