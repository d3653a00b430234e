-- Note that a turn may have a node from now on, so that somebody finds it if its session never comes back.
--
-- Replies { 'noted' }.

local open = KEYS[1]
-- args { turn: string, check_in_ms: number }

redis.call('ZADD', open, 'NX', now_ms() + args.check_in_ms, args.turn)
return { 'noted' }
