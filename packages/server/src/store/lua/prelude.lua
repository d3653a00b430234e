-- Stands before every script. Only a test passes another time than the clock's.
local args = ARGV[1] == '{}' and {} or cjson.decode(ARGV[1])
local function now_ms()
  return args.now_ms or read_clock()
end
