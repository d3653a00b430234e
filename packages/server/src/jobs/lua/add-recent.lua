-- Remember the newest jobs. All have the score 0, so that they sort by id, and ids made later sort later.
--
-- Replies { 'added' }.

local recent = KEYS[1]
-- args { jobs: string[], length_max: number, keep_ms: number }

for _, job in ipairs(args.jobs) do redis.call('ZADD', recent, 0, job) end
redis.call('ZREMRANGEBYRANK', recent, 0, -1 - args.length_max)
redis.call('PEXPIRE', recent, args.keep_ms)
return { 'added' }
