-- When each was seen last, newest first. Replies { 'seen', member, ms, ... }.

local last_seen = KEYS[1]
-- args { offset: number, limit: number }

local reply = redis.call('ZREVRANGE', last_seen, args.offset, args.offset + args.limit - 1, 'WITHSCORES')
table.insert(reply, 1, 'seen')
return reply
