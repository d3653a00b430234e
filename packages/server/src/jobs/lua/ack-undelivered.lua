-- The session has these results. Replies { 'acknowledged', how many were noted }.

local undelivered = KEYS[1]
-- args { jobs: string[] }

return { 'acknowledged', redis.call('ZREM', undelivered, unpack(args.jobs)) }
