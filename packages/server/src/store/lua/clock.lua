-- Stands once before the scripts that run together. Redis' own clock decides, and they all run at one moment of it.
local store_ms
local function read_clock()
  if not store_ms then
    local time = redis.call('TIME')
    store_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return store_ms
end
