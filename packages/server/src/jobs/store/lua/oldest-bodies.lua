-- The oldest ended jobs of one shard whose bodies are kept, until their bodies add up to `units`.
--
-- Replies { 'oldest', job... }.

local bodies = KEYS[1]
-- args { units: number, count: number }

local reply, units = { 'oldest' }, 0
local listed = redis.call('ZRANGE', bodies, 0, args.count - 1, 'WITHSCORES')
for at = 1, #listed, 2 do
  if units >= args.units then break end
  units = units + tonumber(listed[at + 1]) % 1048576
  reply[#reply + 1] = listed[at]
end
return reply
