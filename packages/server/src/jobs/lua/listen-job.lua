-- Ask to be told of a job's end: its listeners are in the answer to whoever ends it. Their number is bounded.
--
-- Replies { 'found', state, attempt_id, node_id } | { 'absent' }.

local fsm = KEYS[1]
-- args { instance: string, length_max: number }

local held = redis.call('HMGET', fsm, 'state', 'attempt_id', 'node_id', 'listeners')
if not held[1] or held[1] == 'VOID' then
  return { 'absent' }
end
local listeners = held[4] or ''
local words = args.instance .. ' ' .. listeners
if not string.find(' ' .. listeners, ' ' .. args.instance .. ' ', 1, true) and #words <= args.length_max then
  redis.call('HSET', fsm, 'listeners', words)
end
return { 'found', held[1], tonumber(held[2]), held[3] }
