-- Renew the slots a node says it uses, and no others: what was freed while the heartbeat was on its way stays free.
--
-- Replies { 'answered', 'renewed' | 'absent'... }.

local reserved = KEYS[1]
-- args { ttl_ms: number, keep_ms: number, slots: string[] }

local now = now_ms()
local reply = { 'answered' }
for _, slot in ipairs(args.slots) do
  -- One that has run out counts as free, whether or not somebody has cleared it away.
  local live = tonumber(redis.call('ZSCORE', reserved, slot) or 0) > now
  if live then redis.call('ZADD', reserved, 'XX', now + args.ttl_ms, slot) end
  reply[#reply + 1] = live and 'renewed' or 'absent'
end
redis.call('PEXPIRE', reserved, args.keep_ms)
return reply
