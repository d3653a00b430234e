-- Note results that a session has not acknowledged. The set is bounded; its oldest go first.
--
-- Replies { 'added', how many had to go }.

local undelivered = KEYS[1]
-- args { jobs: string[], length_max: number, keep_ms: number }

local now = now_ms()
for _, job in ipairs(args.jobs) do redis.call('ZADD', undelivered, 'NX', now, job) end
redis.call('PEXPIRE', undelivered, args.keep_ms)
return { 'added', redis.call('ZREMRANGEBYRANK', undelivered, 0, -1 - args.length_max) }
