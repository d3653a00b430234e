-- Count the unacknowledged messages and the dead letters of an instance. Acknowledged messages are deleted, so the length
-- is the count. Replies { 'backlog', messages, letters }.

local inbox, dlq = KEYS[1], KEYS[2]

return { 'backlog', redis.call('XLEN', inbox), redis.call('XLEN', dlq) }
