-- Bind a request to a job, once. The answer decides: of all jobs made for one request, one is bound.
--
-- `former`: a job that is known to have no record and to never get one (void-job.lua); it gives way, by
-- compare-and-set. The same job asking again is bound, as it was.
--
-- Replies { 'bound' } | { 'taken', job } | { 'reused', job }: bound with another body.

local binding = KEYS[1]
-- args { job: string, body_hash: string, former: string, ttl_ms: number }

local held = redis.call('GET', binding)
if held then
  local job, body_hash = string.match(held, '^(%S+) (%S+)$')
  if job == args.job then return { 'bound' } end
  if body_hash ~= args.body_hash then return { 'reused', job } end
  if job ~= args.former then return { 'taken', job } end
end
redis.call('SET', binding, args.job .. ' ' .. args.body_hash, 'PX', args.ttl_ms)
return { 'bound' }
