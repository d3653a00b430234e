-- A turn begins: from now on it can be looked up, and found again when its session is gone. It has no node yet.
--
-- Replies { 'open' } | { 'ended' }: it was over before this came.

local turn = KEYS[1]
-- args { session: string }

if redis.call('HEXISTS', turn, 'ended') == 1 then
  return { 'ended' }
end
redis.call('HSETNX', turn, 'session_id', args.session)
return { 'open' }
