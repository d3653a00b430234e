-- Remove ended jobs of one shard whose records have expired, and count the others.
--
-- Replies { 'swept', jobs, units of their bodies, seconds until the first of them expires or -1, then a tenant and its jobs,
-- another tenant and its jobs... }.

local ended, bodies = KEYS[1], KEYS[2]
-- args { count: number }

local now_s = math.floor(now_ms() / 1000)
local gone = redis.call('ZRANGEBYSCORE', bodies, '-inf', string.format('(%.0f', (now_s + 1) * 1048576),
  'WITHSCORES', 'LIMIT', 0, args.count)
local units = 0
for at = 1, #gone, 2 do
  units = units + tonumber(gone[at + 1]) % 1048576
  redis.call('ZREM', bodies, gone[at])
end
if units > 0 then redis.call('HINCRBY', ended, 'units', -units) end
local jobs, first_s, left, tenants = 0, nil, 0, {}
local fields = redis.call('HGETALL', ended)
for at = 1, #fields, 2 do
  local second, tenant = string.match(fields[at], '^(%d+) ?(.*)$')
  local until_s, count = tonumber(second), tonumber(fields[at + 1])
  if not until_s then
    left = count
  elseif until_s <= now_s then
    redis.call('HDEL', ended, fields[at])
  elseif tenant ~= '' then
    tenants[tenant] = (tenants[tenant] or 0) + count
  else
    jobs = jobs + count
    first_s = math.min(first_s or until_s, until_s)
  end
end
local reply = { 'swept', jobs, math.max(0, left), first_s and first_s - now_s or -1 }
for tenant, count in pairs(tenants) do
  reply[#reply + 1] = tenant
  reply[#reply + 1] = count
end
return reply
