-- Marks a node as present for `ttl_ms` from now, unless a newer connection of it has done so.
--
-- Replies { 'present' } | { 'newer', boot_id }.

local presence = KEYS[1]
-- args { boot_id: string, epoch: number, ttl_ms: number }

local held = redis.call('GET', presence)
if held then
  local boot, epoch = string.match(held, '^(.*):(%d+)$')
  if tonumber(epoch) > args.epoch then
    return { 'newer', boot }
  end
end
redis.call('SET', presence, args.boot_id .. ':' .. string.format('%.0f', args.epoch), 'PX', args.ttl_ms)
return { 'present' }
