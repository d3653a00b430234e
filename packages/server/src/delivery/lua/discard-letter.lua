-- Remove a dead letter. Replies { 'discarded' } | { 'absent' }.

local dlq = KEYS[1]
-- args { id: string }

if redis.call('XDEL', dlq, args.id) == 1 then
  return { 'discarded' }
end
return { 'absent' }
