-- Some of the newest jobs, newest first, before `before` ('' = from the newest). Replies { 'listed', 'job tenant'... }.

local recent = KEYS[1]
-- args { before: string, count: number }

local from = args.before == '' and '+' or '(' .. args.before
local reply = redis.call('ZREVRANGEBYLEX', recent, from, '-', 'LIMIT', 0, args.count)
table.insert(reply, 1, 'listed')
return reply
