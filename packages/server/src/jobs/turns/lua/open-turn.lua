-- Open a turn, so that it can be read, and swept when its session is gone. It has no node yet.
--
-- Replies { 'open' } | { 'ended' }: it ended before.

local turn = KEYS[1]
-- args { session: string }

if redis.call('HEXISTS', turn, 'ended') == 1 then
  return { 'ended' }
end
redis.call('HSETNX', turn, 'session_id', args.session)
return { 'open' }
