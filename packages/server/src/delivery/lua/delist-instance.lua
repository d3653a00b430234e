-- Take an instance off the list, if its entry is still the one that was read before its inbox was found
-- empty and closed. Replies { 'delisted' } | { 'changed' }.

local all = KEYS[1]
-- args { instance_id: string, entry: string }

if redis.call('HGET', all, args.instance_id) ~= args.entry then
  return { 'changed' }
end
redis.call('HDEL', all, args.instance_id)
return { 'delisted' }
