-- Marks an instance as alive for `ttl_ms` from now. Replies { 'announced' }.

local presence = KEYS[1]
-- args { boot_id: string, ttl_ms: number }

redis.call('SET', presence, args.boot_id, 'PX', args.ttl_ms)
return { 'announced' }
