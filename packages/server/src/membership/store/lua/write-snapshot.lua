-- Write what a node is, unless a newer connection of it has written already.
--
-- Replies { 'written' } | { 'newer' }.

local snapshot = KEYS[1]
-- args { epoch: number, snapshot: string, ttl_ms: number }

local held = redis.call('GET', snapshot)
if held and cjson.decode(held).epoch > args.epoch then
  return { 'newer' }
end
redis.call('SET', snapshot, args.snapshot, 'PX', args.ttl_ms)
return { 'written' }
