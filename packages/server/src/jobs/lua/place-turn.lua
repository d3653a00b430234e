-- The node of a turn: the first placement decides, every later one is told. An ended turn takes no node any more.
--
-- Replies { 'placed' | 'stored', node } | { 'ended' }.

local turn = KEYS[1]
-- args { session: string, node: string }

if redis.call('HEXISTS', turn, 'ended') == 1 then
  return { 'ended' }
end
redis.call('HSETNX', turn, 'session_id', args.session)
local first = redis.call('HSETNX', turn, 'affinity_node_id', args.node) == 1
return { first and 'placed' or 'stored', redis.call('HGET', turn, 'affinity_node_id') }
