-- Count one more delivery of a pending message, before it is made: a message that kills its reader must
-- count too. Replies { 'counted' } | { 'absent' }.

local inbox = KEYS[1]
-- args { group: string, consumer: string, id: string }

local claimed = redis.call('XCLAIM', inbox, args.group, args.consumer, 0, args.id)
if claimed[1] then
  return { 'counted' }
end
return { 'absent' }
