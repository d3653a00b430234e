-- Leave a node out for one service that it reported unavailable. The reservations of every instance respect the mark.
--
-- Only so many reports of one node count in a window, so that a broken node cannot mark every service.
--
-- Replies { 'marked' } | { 'already' } | { 'limited' }.

local unavailable, reports = KEYS[1], KEYS[2]
-- args { service: string, ttl_ms: number, window_ms: number, reports_max: number }

local now = now_ms()
local window = redis.call('HMGET', reports, 'since_ms', 'count')
local since, count = tonumber(window[1] or 0), tonumber(window[2] or 0)
if now - since >= args.window_ms then since, count = now, 0 end
if count >= args.reports_max then
  return { 'limited' }
end
redis.call('HSET', reports, 'since_ms', since, 'count', count + 1)
redis.call('PEXPIRE', reports, args.window_ms * 2)
redis.call('ZREMRANGEBYSCORE', unavailable, '-inf', now)
local added = redis.call('ZADD', unavailable, now + args.ttl_ms, args.service)
redis.call('PEXPIRE', unavailable, args.ttl_ms * 2)
return { added == 1 and 'marked' or 'already' }
