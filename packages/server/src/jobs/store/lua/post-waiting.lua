-- Post which jobs wait in a pool at one instance, and read which wait at the others.
--
-- A hash by instance of '<expiry> <heads>'. An entry that was not renewed expires: its instance has stopped. No heads: no
-- job waits there.
--
-- Replies { 'others', instance, heads... }.

local waiting = KEYS[1]
local instance, heads, ttl_ms = ARGV[2], ARGV[3], ARGV[4]

local now = now_ms()
if heads == '' then
  redis.call('HDEL', waiting, instance)
else
  redis.call('HSET', waiting, instance, (now + ttl_ms) .. ' ' .. heads)
  redis.call('PEXPIRE', waiting, ttl_ms * 4)
end
local reply = { 'others' }
local entries = redis.call('HGETALL', waiting)
for at = 1, #entries, 2 do
  local expires, text = string.match(entries[at + 1], '^(%d+) (.*)$')
  if not expires or tonumber(expires) <= now then
    redis.call('HDEL', waiting, entries[at])
  elseif entries[at] ~= instance then
    reply[#reply + 1] = entries[at]
    reply[#reply + 1] = text
  end
end
return reply
