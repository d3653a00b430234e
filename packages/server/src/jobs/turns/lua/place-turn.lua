-- Decide the node of a turn: the first placement decides, every later one gets its node. Jobs that joined a turn may be
-- placed after it has ended; they go to the node it had, or to the node of the first of them. That is written to the mark,
-- which expires: a late placement does not reopen the turn.
--
-- Replies { 'placed' | 'stored', node }.

local turn = KEYS[1]
-- args { session: string, node: string }

local ended = redis.call('HEXISTS', turn, 'ended') == 1
local field = ended and 'last_node_id' or 'affinity_node_id'
redis.call('HSETNX', turn, 'session_id', args.session)
local first = redis.call('HSETNX', turn, field, args.node) == 1
return { first and 'placed' or 'stored', redis.call('HGET', turn, field) }
