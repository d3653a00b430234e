-- Count ended jobs, and with `leave` '1' take them out of the recovery index: they are done.
--
-- `ended` counts by the second in which the record expires, rounded up to a bucket, so that the count needs no list of
-- jobs; its field `units` is the sum of all bodies. Fields `second tenant` count the jobs of one tenant the same way, in
-- larger buckets: there are as many of them as tenants. `bodies` lists the jobs whose result and timeline are kept: the score
-- is that second times 2^20, plus the size of the body in units of 64 bytes. A job counts once: when it enters `bodies`.
-- Size 0 is a job whose body was dropped; it was counted before.
--
-- Replies { 'counted', how many were new }.

local due, ended, bodies = KEYS[1], KEYS[2], KEYS[3]
local jobs, sizes, tenants, keep_ms, leave = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local until_s = math.ceil((now_ms() + keep_ms) / 1000)
local next_size, next_tenant = string.gmatch(sizes, '%d+'), string.gmatch(tenants, '%S+')
local left, listed, sized, seen = { 'ZREM', due }, { 'ZMSCORE', bodies }, {}, {}
for job in string.gmatch(jobs, '%S+') do
  left[#left + 1] = job
  local size, tenant = tonumber(next_size()), next_tenant()
  if size > 0 and not seen[job] then
    seen[job] = true
    listed[#listed + 1] = job
    sized[#sized + 1] = { job, size, tenant }
  end
end
local count, units, counts, add = 0, 0, {}, { 'ZADD', bodies, 'NX' }
-- Two calls for all of them, not one for each.
local known = #sized > 0 and redis.call(unpack(listed))
for index, each in ipairs(sized) do
  if not known[index] then
    count, units = count + 1, units + each[2]
    counts[each[3]] = (counts[each[3]] or 0) + 1
    add[#add + 1] = string.format('%.0f', until_s * 1048576 + each[2])
    add[#add + 1] = each[1]
  end
end
if leave == '1' then redis.call(unpack(left)) end
if count > 0 then
  local function bucket(buckets)
    local bucket_s = math.max(1, math.ceil(keep_ms / 1000 / buckets))
    return string.format('%.0f', math.ceil(until_s / bucket_s) * bucket_s)
  end
  redis.call(unpack(add))
  local is_first = redis.call('HINCRBY', ended, bucket(64), count) == count
  for tenant, jobs_of in pairs(counts) do
    redis.call('HINCRBY', ended, bucket(16) .. ' ' .. tenant, jobs_of)
  end
  -- No expiry is older than a bucket, and a list that was empty has none.
  local was_empty = redis.call('HINCRBY', ended, 'units', units) <= units
  if is_first or was_empty then
    redis.call('PEXPIRE', ended, keep_ms * 2)
    redis.call('PEXPIRE', bodies, keep_ms * 2)
  end
end
return { 'counted', count }
