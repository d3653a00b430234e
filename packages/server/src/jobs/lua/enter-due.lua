-- Say when jobs are due, `in_ms` from now. With `only_listed` one that has left is not brought back.
--
-- Replies { 'entered' }.

local due = KEYS[1]
-- args { jobs: string[], in_ms: number[], only_listed: boolean }

local now = now_ms()
local call = { 'ZADD', due }
if args.only_listed then call[3] = 'XX' end
for index, job in ipairs(args.jobs) do
  call[#call + 1] = now + args.in_ms[index]
  call[#call + 1] = job
end
redis.call(unpack(call))
return { 'entered' }
