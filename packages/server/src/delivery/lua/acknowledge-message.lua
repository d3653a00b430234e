-- A message has taken effect, was superseded, or is in another inbox: it leaves this one. The same call
-- again changes nothing. Replies { 'acknowledged' } | { 'absent' }.

local inbox = KEYS[1]
-- args { group: string, id: string }

redis.call('XACK', inbox, args.group, args.id)
if redis.call('XDEL', inbox, args.id) == 1 then
  return { 'acknowledged' }
end
return { 'absent' }
