-- The node of a turn: the first placement decides, every later one is told. Jobs that joined a turn may be placed when it
-- has ended already; they go to the node it had, or else to the first of theirs. That is noted on the mark that runs out:
-- a late placement does not bring the turn back.
--
-- Replies { 'placed' | 'stored', node }.

local turn = KEYS[1]
-- args { session: string, node: string }

local ended = redis.call('HEXISTS', turn, 'ended') == 1
local field = ended and 'last_node_id' or 'affinity_node_id'
redis.call('HSETNX', turn, 'session_id', args.session)
local first = redis.call('HSETNX', turn, field, args.node) == 1
return { first and 'placed' or 'stored', redis.call('HGET', turn, field) }
