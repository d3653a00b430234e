-- Register an instance for the end of a job: the call that ends the job gets the listeners. Their number is bounded.
--
-- Replies { 'found', state, at } | { 'absent' }.

local fsm = KEYS[1]
-- args { instance: string, length_max: number }

write_now(fsm)
local held = redis.call('HMGET', fsm, 'state', 'at', 'listeners')
if not held[2] then
  return { 'absent' }
end
local listeners = held[3] or ''
local words = args.instance .. ' ' .. listeners
if not string.find(' ' .. listeners, ' ' .. args.instance .. ' ', 1, true) and #words <= args.length_max then
  redis.call('HSET', fsm, 'listeners', words)
end
return { 'found', held[1], held[2] }
