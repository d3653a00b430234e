-- Put an instance on the list with a new mark: an instance that read the entry before can no longer remove it. Other
-- fields of the entry stay. Replies { 'marked' }.

local all = KEYS[1]
-- args { instance_id: string, mark: string }

local known, entry = pcall(cjson.decode, redis.call('HGET', all, args.instance_id) or '')
if not known or type(entry) ~= 'table' then
  entry = { v = 1 }
end
entry.mark = args.mark
redis.call('HSET', all, args.instance_id, cjson.encode(entry))
return { 'marked' }
