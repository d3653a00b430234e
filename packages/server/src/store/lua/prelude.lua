-- Stands before every script. Redis' own clock decides; only a test passes another time.
local args = cjson.decode(ARGV[1])
local function now_ms()
  if args.now_ms then return args.now_ms end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
