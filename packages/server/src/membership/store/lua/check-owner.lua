-- Whether a connection is on this instance. Replies { 'here' } | { 'elsewhere' } | { 'absent' }.

local owner = KEYS[1]
local instance_id = ARGV[2]

local held = redis.call('GET', owner)
if not held then
  return { 'absent' }
end
-- <instance>:<epoch>. An instance id may contain a colon, an epoch never does.
return { string.match(held, '^(.*):') == instance_id and 'here' or 'elsewhere' }
