-- List a turn for the sweep, which ends it if its session never returns.
--
-- Replies { 'noted' }.

local open = KEYS[1]
-- args { turn: string, check_in_ms: number }

redis.call('ZADD', open, 'NX', now_ms() + args.check_in_ms, args.turn)
return { 'noted' }
