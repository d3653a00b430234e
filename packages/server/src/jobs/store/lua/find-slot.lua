-- Whether a slot of one node is in use. Replies { 'held' } or { 'absent' }.

local reserved = KEYS[1]
-- args { slot: string }

local expires_at = redis.call('ZSCORE', reserved, args.slot)
return { expires_at and tonumber(expires_at) > now_ms() and 'held' or 'absent' }
