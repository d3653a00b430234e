-- End a session's current turn: the next job begins another. With `turn` only if that is the current one.
--
-- Replies { 'left', turn } | { 'none' }.

local session = KEYS[1]
-- args { turn: string }

local current = redis.call('HGET', session, 'current_turn_id')
if not current or (args.turn ~= '' and current ~= args.turn) then
  return { 'none' }
end
redis.call('HDEL', session, 'current_turn_id')
return { 'left', current }
