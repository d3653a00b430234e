-- Note which process takes an attempt without a word: its node starts short jobs in silence. Only while the attempt is
-- dispatched; later its node has reported it. '' as boot_id: no process, the attempt was not sent.
--
-- Replies { 'taken' } | { 'unchanged' }.

local fsm = KEYS[1]
-- args { attempt_id: number, boot_id: string }

write_now(fsm)
local held = redis.call('HMGET', fsm, 'state', 'at')
local attempt = string.format('%d', args.attempt_id)
if held[1] ~= 'DISPATCHED' or string.match(held[2], '^%d+') ~= attempt then
  return { 'unchanged' }
end
redis.call('HSET', fsm, 'taken', args.boot_id ~= '' and attempt .. ':' .. args.boot_id or '')
return { 'taken' }
