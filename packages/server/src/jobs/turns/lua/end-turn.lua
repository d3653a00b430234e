-- End a turn. A mark stays until it expires, so that a late placement does not reopen the turn, and finds the node of the
-- other jobs.
--
-- Replies { 'ended' } | { 'already' }.

local turn = KEYS[1]
-- args { session: string, reason: string, expiry_ms: number }

if redis.call('HEXISTS', turn, 'ended') == 1 then
  return { 'already' }
end
local node = redis.call('HGET', turn, 'affinity_node_id')
if node then
  redis.call('HDEL', turn, 'affinity_node_id')
  redis.call('HSET', turn, 'last_node_id', node)
end
redis.call('HSET', turn, 'ended', args.reason)
redis.call('HSETNX', turn, 'session_id', args.session)
redis.call('PEXPIRE', turn, args.expiry_ms)
return { 'ended' }
