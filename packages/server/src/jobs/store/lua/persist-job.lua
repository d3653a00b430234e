-- Remove the expiry of a job that is bound to its request. Any step of advance-job.lua does the same.
--
-- A job that is RELEASED keeps its expiry, so that a late call does not make it stay.
--
-- Replies { 'persisted' } | { 'absent' }: it expired or gave way; the submit that bound it has to stop.

local fsm, payload = KEYS[1], KEYS[2]
local turn_id = ARGV[2]

write_now(fsm)
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
