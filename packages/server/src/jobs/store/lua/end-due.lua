-- Count ended jobs, and with `leave` '1' take them out of the recovery index: they are done.
--
-- `ended` counts by the second in which the record expires, rounded up to a bucket, so that the count needs no list of
-- jobs; its field `units` is the sum of all bodies. `bodies` lists the jobs whose result and timeline are kept: the score
-- is that second times 2^20, plus the size of the body in units of 64 bytes. A job counts once: when it enters `bodies`.
-- Size 0 is a job whose body was dropped; it was counted before.
--
-- Replies { 'counted', how many were new }.

local due, ended, bodies = KEYS[1], KEYS[2], KEYS[3]
local jobs, sizes, keep_ms, leave = ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local until_s = math.ceil((now_ms() + keep_ms) / 1000)
local next_size = string.gmatch(sizes, '%d+')
local left, count, units = { 'ZREM', due }, 0, 0
for job in string.gmatch(jobs, '%S+') do
  left[#left + 1] = job
  local size = tonumber(next_size())
  local score = string.format('%.0f', until_s * 1048576 + size)
  if size > 0 and redis.call('ZADD', bodies, 'NX', score, job) == 1 then
    count, units = count + 1, units + size
  end
end
if leave == '1' then redis.call(unpack(left)) end
if count > 0 then
  local bucket_s = math.max(1, math.ceil(keep_ms / 64000))
  redis.call('HINCRBY', ended, string.format('%.0f', math.ceil(until_s / bucket_s) * bucket_s), count)
  redis.call('HINCRBY', ended, 'units', units)
  redis.call('PEXPIRE', ended, keep_ms * 2)
  redis.call('PEXPIRE', bodies, keep_ms * 2)
end
return { 'counted', count }
