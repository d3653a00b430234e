-- Take what is due in one shard of the index. Each entry moves ahead by `hold_ms` at once: whoever took it does what
-- is due, and if that one stops halfway, the entry is due again for anybody.
--
-- Replies { 'taken', ms until the next is due, -1 = none, job... }.

local due = KEYS[1]
-- args { count: number, hold_ms: number }

local now = now_ms()
local taken = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, args.count)
for _, job in ipairs(taken) do redis.call('ZADD', due, now + args.hold_ms, job) end
local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
local reply = { 'taken', first[2] and math.max(0, tonumber(first[2]) - now) or -1 }
for _, job in ipairs(taken) do reply[#reply + 1] = job end
return reply
