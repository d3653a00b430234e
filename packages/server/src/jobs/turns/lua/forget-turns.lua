-- These turns have no node any more; nobody needs to look. Replies { 'forgotten', turns still noted }.

local open = KEYS[1]
-- args { turns: string[] }

if #args.turns > 0 then redis.call('ZREM', open, unpack(args.turns)) end
return { 'forgotten', redis.call('ZCARD', open) }
