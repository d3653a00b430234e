-- A job of a session joins its current turn, or begins one. A job that carries `finalize` is the turn's last: the next
-- one begins another.
--
-- Nothing here expires: a long pause does not end a turn. The session keeps its last closing jobs, so that one that joins
-- again (its instance stopped meanwhile) does not close the turn after its own.
--
-- Replies { 'joined', turn, begun 0 | 1 } | { 'absent' }: the session is gone.

local session = KEYS[1]
-- args { job: string, turn: string, finalize: boolean, closings_max: number }

local held = redis.call('HMGET', session, 'tenant', 'current_turn_id', 'closings')
if not held[1] then
  return { 'absent' }
end
if not args.finalize then
  redis.call('HSETNX', session, 'current_turn_id', args.turn)
  return { 'joined', held[2] or args.turn, held[2] and 0 or 1 }
end
local closings = held[3] or ''
local before = string.match(closings, args.job:gsub('%-', '%%-') .. '=(%S+)')
if before then
  return { 'joined', before, 0 }
end
local turn = held[2] or args.turn
redis.call('HDEL', session, 'current_turn_id')
closings = args.job .. '=' .. turn .. ' ' .. closings
redis.call('HSET', session, 'closings', string.sub(closings, 1, args.closings_max))
return { 'joined', turn, held[2] and 0 or 1 }
