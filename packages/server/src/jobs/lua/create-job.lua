-- Write down a new job. The record runs out by itself unless somebody says that it is the request's job
-- (persist-job.lua, or any step of advance-job.lua): a submitter that stops here leaves nothing behind.
--
-- Replies { 'created', now_ms } | { 'duplicate' } | { 'void' }: given up before it was written (void-job.lua).

local fsm, payload = KEYS[1], KEYS[2]
local payload_text = ARGV[2]
-- args { fields: string[], expiry_ms: number }

local held = redis.call('HGET', fsm, 'state')
if held then
  return { held == 'VOID' and 'void' or 'duplicate' }
end
local now = now_ms()
redis.call('HSET', fsm, 'state', 'CREATED', 'attempt_id', 1, 'node_id', '', 'counted_attempts', 0,
  'state_ms', now, 'attempt_ms', now, 'created_ms', now, unpack(args.fields))
redis.call('PEXPIRE', fsm, args.expiry_ms)
redis.call('SET', payload, payload_text, 'PX', args.expiry_ms)
return { 'created', now }
