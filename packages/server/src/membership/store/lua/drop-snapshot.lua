-- Take a node's snapshot away, if it is still of this connection. Replies { 'dropped' } | { 'not_ours' }.

local snapshot = KEYS[1]
-- args { epoch: number }

local held = redis.call('GET', snapshot)
if not held or cjson.decode(held).epoch ~= args.epoch then
  return { 'not_ours' }
end
redis.call('DEL', snapshot)
return { 'dropped' }
