-- Take the turns to check now. Each moves ahead at once, so that instances check different ones.
--
-- Replies { 'taken', turn... }.

local open = KEYS[1]
-- args { count: number, check_in_ms: number }

local now = now_ms()
local reply = redis.call('ZRANGEBYSCORE', open, '-inf', now, 'LIMIT', 0, args.count)
for _, turn in ipairs(reply) do redis.call('ZADD', open, now + args.check_in_ms, turn) end
table.insert(reply, 1, 'taken')
return reply
