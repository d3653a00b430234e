-- First of two steps that open an inbox: leave a mark, which closing the inbox would remove.
--
-- Between the two the instance is put on the list of inboxes somebody reads. The mark that is still there
-- proves that nobody who found the inbox empty can take the instance off that list any more. Senders who
-- come at the same time share one mark, so that they do not keep overtaking each other.
--
-- Replies { 'prepared', mark } | { 'open' }.

local inbox, opening = KEYS[1], KEYS[2]
-- args { group: string, mark: string, ttl_ms: number }

if redis.call('EXISTS', inbox) == 1 then
  -- Somebody else's XADD may have made the stream without the group; made already, it answers BUSYGROUP.
  redis.pcall('XGROUP', 'CREATE', inbox, args.group, '0')
  return { 'open' }
end
redis.call('SET', opening, args.mark, 'PX', args.ttl_ms, 'NX')
return { 'prepared', redis.call('GET', opening) }
