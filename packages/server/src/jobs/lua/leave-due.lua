-- Nothing will ever be due for these jobs again. Replies { 'left', how many were listed }.

local due = KEYS[1]
-- args { jobs: string[] }

return { 'left', redis.call('ZREM', due, unpack(args.jobs)) }
