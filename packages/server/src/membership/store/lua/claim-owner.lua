-- Sets the instance that owns a connection, unless a newer connection is set already.
--
-- Epochs come from one sequence, so a higher one is always the later connection. The same call again, and
-- the renewal of a key that ran out, are the same question and get the same answer.
--
-- Replies { 'owned' } | { 'newer', holder }.

local owner = KEYS[1]
-- args { holder: string, epoch: number, ttl_ms: number }

local held = redis.call('GET', owner)
if held and tonumber(string.match(held, ':(%d+)$')) > args.epoch then
  return { 'newer', held }
end
redis.call('SET', owner, args.holder, 'PX', args.ttl_ms)
return { 'owned' }
