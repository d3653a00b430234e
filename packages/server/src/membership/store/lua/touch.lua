-- Note that these were seen now. Replies { 'touched' }.

local last_seen = KEYS[1]
-- args { members: string[] }

local now = now_ms()
for _, member in ipairs(args.members) do
  redis.call('ZADD', last_seen, 'GT', now, member)
end
return { 'touched' }
