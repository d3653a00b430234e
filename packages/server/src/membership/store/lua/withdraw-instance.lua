-- Take back an instance's presence, if it is this boot's. Replies { 'withdrawn' } | { 'absent' }.

local presence = KEYS[1]
-- args { boot_id: string }

if redis.call('GET', presence) ~= args.boot_id then
  return { 'absent' }
end
redis.call('DEL', presence)
return { 'withdrawn' }
