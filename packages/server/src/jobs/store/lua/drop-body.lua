-- Drop the result and the timeline of an ended job. Its record stays, with the outcome. A small result moves into the
-- record: it takes less room there than the error that stands for a dropped one.
--
-- Replies { 'dropped' } | { 'open' }: the job has not ended, and nothing changes.

local fsm, result, timeline = KEYS[1], KEYS[2], KEYS[3]
-- args { inline_max: number }

write_now(fsm)
local state = redis.call('HGET', fsm, 'state')
if state and state ~= 'FINISHED' and state ~= 'RELEASED' then
  return { 'open' }
end
local text = state and redis.call('GET', result)
if text and #text <= args.inline_max then redis.call('HSET', fsm, 'result', text) end
if state then redis.call('HDEL', fsm, 'timeline', 'avoid', 'last_failure', 'last_reason', 'listeners') end
redis.call('DEL', result, timeline)
return { 'dropped' }
