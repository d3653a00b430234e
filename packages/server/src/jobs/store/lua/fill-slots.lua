-- Restore the slots of the attempts that a registering node runs. Slots that are still reserved stay.
--
-- Beyond the capacity nothing is restored: such an attempt lost its slot while the node was away.
--
-- Replies { 'answered', slots in use, 'held' | 'full'... }.

local reserved = KEYS[1]
-- args { capacity: number, ttl_ms: number, keep_ms: number, slots: string[] }

local now = now_ms()
redis.call('ZREMRANGEBYSCORE', reserved, '-inf', now)
local used = redis.call('ZCARD', reserved)
local reply = { 'answered', used }
for _, slot in ipairs(args.slots) do
  local held = redis.call('ZSCORE', reserved, slot)
  if held or used < args.capacity then
    used = used + redis.call('ZADD', reserved, now + args.ttl_ms, slot)
    reply[#reply + 1] = 'held'
  else
    reply[#reply + 1] = 'full'
  end
end
redis.call('PEXPIRE', reserved, args.keep_ms)
reply[2] = used
return reply
