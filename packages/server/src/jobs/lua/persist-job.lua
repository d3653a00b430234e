-- Keep a job for good: it is the one its request is bound to. Any step of advance-job.lua does the same.
--
-- Replies { 'persisted' } | { 'absent' }: it ran out or was given up; whoever bound it must not go on.

local fsm, payload = KEYS[1], KEYS[2]
-- args { fields: string[] }

local held = redis.call('HGET', fsm, 'state')
if not held or held == 'VOID' then
  return { 'absent' }
end
redis.call('PERSIST', fsm)
redis.call('PERSIST', payload)
redis.call('HSET', fsm, 'persisted', 1, unpack(args.fields))
return { 'persisted' }
