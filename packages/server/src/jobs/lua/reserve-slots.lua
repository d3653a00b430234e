-- Reserve slots of one node, each for one attempt of one job, as many as its capacity allows.
--
-- Instances choose nodes from snapshots that may be old; this is where they meet. A slot that was not renewed has
-- run out and is free. Asking again for a slot one holds is answered as the first time.
--
-- Replies { 'answered', slots in use, 'reserved' | 'full' | 'unavailable'... }.

local reserved, unavailable = KEYS[1], KEYS[2]
-- args { capacity: number, ttl_ms: number, keep_ms: number, slots: string[], services: string[] }

local now = now_ms()
redis.call('ZREMRANGEBYSCORE', reserved, '-inf', now)
local used = redis.call('ZCARD', reserved)
local reply = { 'answered', used }
for index, slot in ipairs(args.slots) do
  local service = args.services[index]
  local marked = service ~= '' and tonumber(redis.call('ZSCORE', unavailable, service) or 0) > now
  local answer = 'reserved'
  if not marked and used < args.capacity then
    used = used + redis.call('ZADD', reserved, now + args.ttl_ms, slot)
  elseif not redis.call('ZSCORE', reserved, slot) then
    answer = marked and 'unavailable' or 'full'
  end
  reply[#reply + 1] = answer
end
redis.call('PEXPIRE', reserved, args.keep_ms)
reply[2] = used
return reply
