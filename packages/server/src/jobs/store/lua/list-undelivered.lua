-- Results a session has not acknowledged, oldest first. Replies { 'listed', job... }.

local undelivered = KEYS[1]
-- args { count: number }

local reply = redis.call('ZRANGE', undelivered, 0, args.count - 1)
table.insert(reply, 1, 'listed')
return reply
