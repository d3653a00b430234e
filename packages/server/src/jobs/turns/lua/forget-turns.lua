-- Take ended turns off the list of the sweep. Replies { 'forgotten', turns still listed }.

local open = KEYS[1]
-- args { turns: string[] }

if #args.turns > 0 then redis.call('ZREM', open, unpack(args.turns)) end
return { 'forgotten', redis.call('ZCARD', open) }
