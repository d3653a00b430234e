-- Free a request, if it is still bound to this job. Replies { 'unbound' } | { 'not_ours' }.

local binding = KEYS[1]
-- args { job: string }

local held = redis.call('GET', binding)
if not held or string.match(held, '^(%S+) ') ~= args.job then
  return { 'not_ours' }
end
redis.call('DEL', binding)
return { 'unbound' }
