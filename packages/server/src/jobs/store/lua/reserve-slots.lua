-- Reserve slots of one node, each for one attempt of one job, as many as its capacity allows.
--
-- Instances choose nodes from snapshots that may be old; this script decides between them. A slot that was not renewed has
-- expired and is free. An attempt that has a slot gets the same answer again.
--
-- Replies { 'answered', slots in use, 'reserved' | 'full' | 'unavailable'... }.

local reserved, unavailable = KEYS[1], KEYS[2]
local capacity, ttl_ms, keep_ms, slots, services = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local now = now_ms()
local expires = tostring(now + ttl_ms)
local room = tonumber(capacity)
local used = redis.call('ZCARD', reserved)
if used > 0 then used = used - redis.call('ZREMRANGEBYSCORE', reserved, '-inf', tostring(now)) end
local reply = { 'answered', used }
-- Gathered, and added in one call: as long as there is room for all of them, it does not matter which were reserved already. Lua
-- takes some thousands of arguments, no more.
local gathered_max = 1000
local call, gathered = { 'ZADD', reserved }, 0
local function add()
  if gathered > 0 then used = used + redis.call(unpack(call)) end
  call, gathered = { 'ZADD', reserved }, 0
end
local next_service = string.gmatch(services, '%S+')
for slot in string.gmatch(slots, '%S+') do
  local service = next_service()
  local marked = service ~= '-' and tonumber(redis.call('ZSCORE', unavailable, service) or 0) > now
  local answer = 'reserved'
  if used + gathered >= room or gathered == gathered_max then add() end
  if not marked and used + gathered < room then
    gathered = gathered + 1
    call[#call + 1] = expires
    call[#call + 1] = slot
  elseif not redis.call('ZSCORE', reserved, slot) then
    answer = marked and 'unavailable' or 'full'
  end
  reply[#reply + 1] = answer
end
add()
redis.call('PEXPIRE', reserved, keep_ms)
reply[2] = used
return reply
