-- Renew the slots that a heartbeat names, and no others: a slot that was freed meanwhile stays free.
--
-- Replies { 'answered', 'renewed' | 'absent'... }.

local reserved = KEYS[1]
-- args { ttl_ms: number, keep_ms: number, slots: string[] }

local now = now_ms()
local reply = { 'answered' }
for _, slot in ipairs(args.slots) do
  -- An expired slot is free, whether or not it was removed.
  local live = tonumber(redis.call('ZSCORE', reserved, slot) or 0) > now
  if live then redis.call('ZADD', reserved, 'XX', now + args.ttl_ms, slot) end
  reply[#reply + 1] = live and 'renewed' or 'absent'
end
redis.call('PEXPIRE', reserved, args.keep_ms)
return reply
