-- Deletes the presence of a node, unless a newer connection has set it. Replies { 'dropped' } | { 'not_ours' }.

local presence = KEYS[1]
-- args { epoch: number }

local held = redis.call('GET', presence)
if not held or tonumber(string.match(held, ':(%d+)$')) ~= args.epoch then
  return { 'not_ours' }
end
redis.call('DEL', presence)
return { 'dropped' }
