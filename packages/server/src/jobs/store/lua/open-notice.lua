-- Open the window in which one line is logged about a service, unless an instance has opened it already.
--
-- Replies { 'opened' } | { 'open' }.

local notice = KEYS[1]
-- args { window_ms: number }

local now = now_ms()
if now < tonumber(redis.call('GET', notice) or 0) then
  return { 'open' }
end
redis.call('SET', notice, now + args.window_ms, 'PX', args.window_ms)
return { 'opened' }
