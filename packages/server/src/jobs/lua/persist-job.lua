-- Keep a job for good: it is the one its request is bound to. Any step of advance-job.lua does the same.
--
-- Replies { 'persisted' } | { 'absent' }: it ran out or was given up; whoever bound it must not go on.

local fsm, payload = KEYS[1], KEYS[2]
local turn_id = ARGV[2]

local at = redis.call('HGET', fsm, 'at')
if not at then
  return { 'absent' }
end
redis.call('PERSIST', fsm)
redis.call('PERSIST', payload)
redis.call('HSET', fsm, 'at', (string.gsub(at, '^(%d+ %d+ %d+) %d', '%1 1')))
if turn_id ~= '' then redis.call('HSET', fsm, 'turn_id', turn_id) end
return { 'persisted' }
