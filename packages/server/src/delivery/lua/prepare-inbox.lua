-- First of two steps that open an inbox: set a mark, which closing the inbox would remove.
--
-- Between the two steps the instance is put on the list of inboxes. If the mark is still there afterwards, an instance that
-- found the inbox empty before can no longer take it off that list. Concurrent senders share one mark, so that they do
-- not overtake each other again and again.
--
-- Replies { 'prepared', mark } | { 'open' }.

local inbox, opening = KEYS[1], KEYS[2]
-- args { group: string, mark: string, ttl_ms: number }

if redis.call('EXISTS', inbox) == 1 then
  -- A foreign XADD may have made the stream without the group. If the group exists, the reply is BUSYGROUP.
  redis.pcall('XGROUP', 'CREATE', inbox, args.group, '0')
  return { 'open' }
end
redis.call('SET', opening, args.mark, 'PX', args.ttl_ms, 'NX')
return { 'prepared', redis.call('GET', opening) }
