-- Drop dead letters that were moved longer than `keep_ms` ago. Their stream ids begin with that time.
--
-- Replies { 'expired', letters }.

local dlq = KEYS[1]
-- args { keep_ms: number }

local oldest_ms = string.format('%.0f', math.max(0, now_ms() - args.keep_ms))
return { 'expired', redis.call('XTRIM', dlq, 'MINID', oldest_ms) }
