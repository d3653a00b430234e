-- Create a job. The record expires unless the job is bound to its request (persist-job.lua) or a step of advance-job.lua is
-- applied: a submit that stops here leaves nothing behind.
--
-- `at` is everything that changes, in one field because every step rewrites it (job-codec.ts has its grammar).
--
-- Replies { 'created', now_ms } | { 'duplicate' } | { 'void' }: it gave way before it was written (void-job.lua).

local fsm, payload = KEYS[1], KEYS[2]
local spec, session_id, attempts_max, expiry_ms, payload_text = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

write_now(fsm)
local held = redis.call('HGET', fsm, 'state')
if held then
  return { held == 'VOID' and 'void' or 'duplicate' }
end
local now = tostring(now_ms())
local at = '1 0 ' .. attempts_max .. ' 0 - ' .. now .. ' ' .. now .. ' -'
-- A step of the same batch takes the expiry away before it is written.
write_later(fsm, {
  job = {
    state = 'CREATED', attempt = '1', counted = '0', attempts_max = attempts_max, kept = '0', node = '-',
    state_ms = now, attempt_ms = now, ended = '-', listeners = '', entries = '',
    created_ms = tonumber(now), spec = spec, taken = '', is_behind = false,
  },
  fields = { state = 'CREATED', at = at, session_id = session_id, created_ms = now, spec = spec },
  texts = { [payload] = payload_text },
  expiry = { [fsm] = expiry_ms, [payload] = expiry_ms },
})
return { 'created', now }
