-- A turn that has a node or has ended. Replies { 'found', session, node or '', reason of its end or '' } | { 'absent' }.

local turn = KEYS[1]

local held = redis.call('HMGET', turn, 'session_id', 'affinity_node_id', 'ended')
if not held[1] then
  return { 'absent' }
end
return { 'found', held[1], held[2] or '', held[3] or '' }
