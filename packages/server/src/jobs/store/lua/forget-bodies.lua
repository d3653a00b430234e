-- Take jobs whose bodies were dropped off the list. Replies { 'forgotten', how many were listed }.

local ended, bodies = KEYS[1], KEYS[2]
local jobs = ARGV[2]

local units, count = 0, 0
for job in string.gmatch(jobs, '%S+') do
  local score = redis.call('ZSCORE', bodies, job)
  if score then
    units, count = units + tonumber(score) % 1048576, count + 1
    redis.call('ZREM', bodies, job)
  end
end
if units > 0 then redis.call('HINCRBY', ended, 'units', -units) end
return { 'forgotten', count }
