-- Acquire or renew the lease of the sweep: one instance at a time sweeps the ended jobs, and the others read its figures.
-- The lease of an instance that stopped expires.
--
-- Replies { 'lead' | 'follow', jobs, units, seconds until the first expires or -1, tenants }, as the last sweep counted them;
-- tenants is a text: a tenant and its jobs, another tenant and its jobs...

local sweep = KEYS[1]
-- args { instance: string, lease_ms: number, jobs: number, units: number, first_s: number, tenants: string }: -1 jobs are no count

local now = now_ms()
local held = redis.call('HMGET', sweep, 'by', 'until_ms', 'jobs', 'units', 'first_s', 'tenants')
local leads = held[1] == args.instance or not held[2] or tonumber(held[2]) <= now
local counted = { tonumber(held[3]) or 0, tonumber(held[4]) or 0, tonumber(held[5]) or -1, held[6] or '' }
if not leads then return { 'follow', unpack(counted) } end
redis.call('HSET', sweep, 'by', args.instance, 'until_ms', string.format('%.0f', now + args.lease_ms))
if args.jobs >= 0 then
  redis.call('HSET', sweep, 'jobs', args.jobs, 'units', string.format('%.0f', args.units), 'first_s', args.first_s,
    'tenants', args.tenants)
end
redis.call('PEXPIRE', sweep, args.lease_ms * 10)
return { 'lead', unpack(counted) }
