-- Write down a new session, or let one in that shows the token it was given.
--
-- The record has no expiry: a session that is away for long is deleted by the instance that finds it, never by a
-- timer of its own. Only the hash of the token is kept.
--
-- Replies { 'opened' } | { 'resumed' } | { 'refused' } | { 'absent' }.

local session = KEYS[1]
-- args { resume: boolean, resume_sha256: string, tenant: string, token: string }

if not args.resume then
  redis.call('HSET', session, 'tenant', args.tenant, 'resume_sha256', args.resume_sha256,
    'token', args.token)
  return { 'opened' }
end
local held = redis.call('HMGET', session, 'resume_sha256', 'tenant')
-- A session of another tenant is answered like none: 'refused' would show that the id exists.
if not held[1] or held[2] ~= args.tenant then
  return { 'absent' }
end
if held[1] ~= args.resume_sha256 then
  return { 'refused' }
end
return { 'resumed' }
