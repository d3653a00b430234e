-- Take overdue entries of one shard of the recovery index. Each moves ahead by `hold_ms` at once: if the instance that took
-- it stops halfway, any instance takes it again.
--
-- Replies { 'taken', ms until the next is overdue, -1 = none, job... }.

local due = KEYS[1]
-- args { count: number, hold_ms: number }

local now = now_ms()
local taken = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, args.count)
for _, job in ipairs(taken) do redis.call('ZADD', due, now + args.hold_ms, job) end
local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
local reply = { 'taken', first[2] and math.max(0, tonumber(first[2]) - now) or -1 }
for _, job in ipairs(taken) do reply[#reply + 1] = job end
return reply
