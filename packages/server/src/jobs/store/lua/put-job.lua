-- Write the record of a job that the store lost, from its row, at an attempt that no record had. It takes the place of a record
-- with an older attempt, which the store brought back from an earlier time.
--
-- It expires unless it is persisted, as that of a submit does. A record that gave way (void-job.lua) is replaced only with `over_void`.
--
-- Replies { 'put' } | { 'void' } | { 'same' }: the record has this attempt | { 'newer' }: or a later one.

local fsm, payload, result, timeline = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local spec, session_id, attempt, counted, attempts_max, created_ms, expiry_ms, over_void, payload_text = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]

write_now(fsm)
if over_void ~= '1' and redis.call('HGET', fsm, 'state') == 'VOID' then
  return { 'void' }
end
local at = redis.call('HGET', fsm, 'at')
local held = at and tonumber(string.match(at, '^(%d+)'))
if held and held >= tonumber(attempt) then
  return { held == tonumber(attempt) and 'same' or 'newer' }
end
local now = tostring(now_ms())
redis.call('DEL', fsm, result, timeline)
redis.call('HSET', fsm, 'state', 'CREATED', 'at', attempt .. ' ' .. counted .. ' ' .. attempts_max .. ' 0 - ' .. now .. ' ' .. now .. ' -',
  'session_id', session_id, 'created_ms', created_ms, 'spec', spec)
redis.call('PEXPIRE', fsm, expiry_ms)
redis.call('SET', payload, payload_text, 'PX', expiry_ms)
return { 'put' }
