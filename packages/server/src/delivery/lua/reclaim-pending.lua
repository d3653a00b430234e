-- Take over messages that were read but not acknowledged, from `cursor` on, and return the next cursor.
--
-- A reader that follows the cursor gets every pending message once per scan; one that always starts at 0-0 would get the
-- first ones only. The delivery is not counted here (JUSTID): some of these are only inspected.
--
-- Replies { 'reclaimed', next_cursor, now_ms, id, deliveries, text, … } | { 'absent' }.

local inbox = KEYS[1]
-- args { group: string, consumer: string, idle_min_ms: number, cursor: string, count: number, bytes_max: number }

if redis.call('EXISTS', inbox) == 0 then
  return { 'absent' }
end
local claim = { 'XAUTOCLAIM', inbox, args.group, args.consumer, args.idle_min_ms, args.cursor, 'COUNT', args.count, 'JUSTID' }
local claimed = redis.pcall(unpack(claim))
if claimed.err then
  redis.call('XGROUP', 'CREATE', inbox, args.group, '0')
  claimed = redis.call(unpack(claim))
end

local reply = { 'reclaimed', claimed[1], now_ms() }
for _, id in ipairs(claimed[2]) do
  local entry = redis.call('XRANGE', inbox, id, id)[1]
  if entry then
    local text = ''
    for at = 1, #entry[2], 2 do
      if entry[2][at] == 'm' then text = entry[2][at + 1] end
    end
    reply[#reply + 1] = id
    reply[#reply + 1] = redis.call('XPENDING', inbox, args.group, id, id, 1)[1][4]
    reply[#reply + 1] = string.sub(text, 1, args.bytes_max)
  else
    redis.call('XACK', inbox, args.group, id) -- deleted by hand: only the pending entry is left
  end
end
return reply
