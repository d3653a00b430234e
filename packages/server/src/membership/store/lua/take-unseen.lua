-- Removes and returns members not seen for `older_than_ms`, at most `limit` of them. The instance that removed
-- a member deletes its data, so two instances never delete the same. Replies { 'taken', member... }.

local last_seen = KEYS[1]
-- args { older_than_ms: number, limit: number }

local before = now_ms() - args.older_than_ms
local taken = redis.call('ZRANGEBYSCORE', last_seen, '-inf', before, 'LIMIT', 0, args.limit)
if #taken > 0 then
  redis.call('ZREM', last_seen, unpack(taken))
end
table.insert(taken, 1, 'taken')
return taken
