-- Read unread messages of an inbox. After that they are pending under `consumer`.
--
-- Replies { 'taken', now_ms, id, text, id, text, … } | { 'absent' }.

local inbox = KEYS[1]
-- args { group: string, consumer: string, count: number, bytes_max: number }

if redis.call('EXISTS', inbox) == 0 then
  return { 'absent' }
end
local read = redis.call('XREADGROUP', 'GROUP', args.group, args.consumer, 'COUNT', args.count, 'STREAMS', inbox, '>')
local reply = { 'taken', now_ms() }
for _, entry in ipairs(read and read[1][2] or {}) do
  local text = ''
  for at = 1, #entry[2], 2 do
    if entry[2][at] == 'm' then text = entry[2][at + 1] end
  end
  reply[#reply + 1] = entry[1]
  reply[#reply + 1] = string.sub(text, 1, args.bytes_max)
end
return reply
