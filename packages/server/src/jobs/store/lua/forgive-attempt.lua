-- Take one attempt off the count: it was ended because its node was lost, and the node is alive. Only an attempt that is
-- recorded as lost on this node, only once, and only while the job has not ended.
--
-- Replies { 'forgiven', counted } | { 'unchanged' }.

local fsm = KEYS[1]
-- args { attempt_id: number, node_id: string }

write_now(fsm)
local held = redis.call('HMGET', fsm, 'at', 'lost')
if not held[1] or not held[2] then
  return { 'unchanged' }
end
local attempt, counted, rest, ended = string.match(held[1], '^(%d+) (%d+) (.* (%S+))$')
local word = ' ' .. string.format('%d', args.attempt_id) .. ':' .. args.node_id .. ' '
local words = ' ' .. held[2]
local from, to = string.find(words, word, 1, true)
if not from or ended ~= '-' then
  return { 'unchanged' }
end
counted = math.max(0, tonumber(counted) - 1)
redis.call('HSET', fsm,
  'at', attempt .. ' ' .. counted .. ' ' .. rest,
  'lost', string.sub(words, 2, from) .. string.sub(words, to + 1))
return { 'forgiven', counted }
