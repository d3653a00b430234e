-- How much an instance has before it: messages unread or unacknowledged, and dead letters. Acknowledged ones
-- are deleted, so the length is the count. Replies { 'backlog', messages, letters }.

local inbox, dlq = KEYS[1], KEYS[2]

return { 'backlog', redis.call('XLEN', inbox), redis.call('XLEN', dlq) }
