-- Move a message to the dead letters in one step, so that it is never in both and never in neither. At the bound the
-- oldest letter is dropped. `keep` is dlq_enabled.
--
-- Replies { 'buried', letter_id, dropped } | { 'absent' }.

local inbox, dlq = KEYS[1], KEYS[2]
-- args { group: string, id: string, reason: string, keep: boolean, length_max: number }

local entry = redis.call('XRANGE', inbox, args.id, args.id)[1]
if not entry then
  redis.call('XACK', inbox, args.group, args.id)
  return { 'absent' }
end

-- Our senders write the message to `m` and the time to `t`. Of any other entry every byte is kept.
local fields = entry[2]
local bytes, sent_at_ms = table.concat(fields, '\0'), tonumber(string.match(entry[1], '^%d+'))
if #fields == 4 and fields[1] == 'm' and fields[3] == 't' then
  bytes, sent_at_ms = fields[2], tonumber(fields[4]) or sent_at_ms
end
local pending = redis.call('XPENDING', inbox, args.group, args.id, args.id, 1)[1]
local moved_at_ms = now_ms()

local letter_id, dropped = '', 0
if args.keep then
  dropped = redis.call('XTRIM', dlq, 'MAXLEN', args.length_max - 1)
  letter_id = redis.call('XADD', dlq, '*', 'bytes', bytes, 'reason', args.reason,
    'deliveries', pending and pending[4] or 0, 'moved_at_ms', moved_at_ms,
    'age_ms', math.max(0, moved_at_ms - sent_at_ms))
end
redis.call('XACK', inbox, args.group, args.id)
redis.call('XDEL', inbox, args.id)
return { 'buried', letter_id, dropped }
