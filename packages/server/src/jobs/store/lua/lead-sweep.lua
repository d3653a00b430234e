-- Acquire or renew the lease of the sweep: one instance at a time sweeps the ended jobs, and the others read its figures.
-- The lease of an instance that stopped expires.
--
-- Replies { 'lead' | 'follow', jobs, units, seconds until the first expires or -1 }, as the last sweep counted them.

local sweep = KEYS[1]
-- args { instance: string, lease_ms: number, jobs: number, units: number, first_s: number }: -1 jobs are no count

local now = now_ms()
local held = redis.call('HMGET', sweep, 'by', 'until_ms', 'jobs', 'units', 'first_s')
local leads = held[1] == args.instance or not held[2] or tonumber(held[2]) <= now
if not leads then
  return { 'follow', tonumber(held[3]) or 0, tonumber(held[4]) or 0, tonumber(held[5]) or -1 }
end
redis.call('HSET', sweep, 'by', args.instance, 'until_ms', string.format('%.0f', now + args.lease_ms))
if args.jobs >= 0 then
  redis.call('HSET', sweep, 'jobs', args.jobs, 'units', string.format('%.0f', args.units), 'first_s', args.first_s)
end
redis.call('PEXPIRE', sweep, args.lease_ms * 10)
return { 'lead', tonumber(held[3]) or 0, tonumber(held[4]) or 0, tonumber(held[5]) or -1 }
