-- Keep a job for good: it is the one its request is bound to. Any step of advance-job.lua does the same.
--
-- One that is RELEASED is kept for as long as it was decided then, and no longer: a call that comes late must not make
-- it stay for ever.
--
-- Replies { 'persisted' } | { 'absent' }: it ran out or was given up; whoever bound it must not go on.

local fsm, payload = KEYS[1], KEYS[2]
local turn_id = ARGV[2]

local held = redis.call('HMGET', fsm, 'at', 'state')
if not held[1] then
  return { 'absent' }
end
if held[2] ~= 'RELEASED' then
  redis.call('PERSIST', fsm)
  redis.call('PERSIST', payload)
  redis.call('HSET', fsm, 'at', (string.gsub(held[1], '^(%d+ %d+ %d+) %d', '%1 1')))
end
if turn_id ~= '' then redis.call('HSET', fsm, 'turn_id', turn_id) end
return { 'persisted' }
