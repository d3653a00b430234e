-- Bind a request to a job, once. The answer decides: of all jobs created for one request, one is bound.
--
-- `former`: a job that is known to have no record and to never get one (void-job.lua); it gives way, by
-- compare-and-set. It is compared before the body: a job without a record has no body that could differ. The same job
-- is bound again.
--
-- Replies { 'bound' } | { 'taken', job } | { 'reused', job }: bound with another body.

local binding = KEYS[1]
local job, body_hash, former, ttl_ms = ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local mine = job .. ' ' .. body_hash
if redis.call('SET', binding, mine, 'NX', 'PX', ttl_ms) then
  return { 'bound' }
end
local held_job, held_hash = string.match(redis.call('GET', binding), '^(%S+) (%S+)$')
if held_job == job then return { 'bound' } end
if held_job ~= former and held_hash ~= body_hash then return { 'reused', held_job } end
if held_job ~= former then return { 'taken', held_job } end
redis.call('SET', binding, mine, 'PX', ttl_ms)
return { 'bound' }
