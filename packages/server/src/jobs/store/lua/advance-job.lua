-- Apply steps to one job, in order. The table is policy/job-table.ts; each step brings its row of it, one letter per
-- state: a digit is the next state, = duplicate, < early, ! ended, ? duplicate if the job ended in the same way.
--
-- Texts instead of JSON, and one field for everything that changes: the script runs several times for every job, and
-- names were three quarters of its cost. A step is a line: event, row, outcome, keep_ms, affinity, flags (r reserved,
-- c counts, a avoid, l lost), code, reason; - stands for none. The grammar is in store/job-codec.ts.
--
-- Replies { 'absent' } or { 'answered', state, at, former node, listeners, now_ms, answer of each step... };
-- listeners are given to the call that ended the job, '' to others.

local fsm, payload, result, timeline = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local attempt_id, node_id, instance_id, steps, result_text = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local STATES = 'CREATED    DISPATCHED ACCEPTED   RUNNING    FINISHED   RELEASED   '
local ENTRIES_MAX, AVOID_MAX = 64, 400

local held = redis.call('HMGET', fsm, 'state', 'at', 'listeners')
if not held[2] then
  return { 'absent' }
end
local state = held[1]
local attempt, counted, attempts_max, kept, node, state_ms, attempt_ms, ended =
  string.match(held[2], '(%d+) (%d+) (%d+) (%d) (%S+) (%d+) (%d+) (%S+)')
local now = tostring(now_ms())
local reply = { 'answered', '', '', node, '', now }
local entries, went, keep_ms, changed = {}, nil, nil, false

local function judge(event, row, outcome, flags)
  if attempt_id ~= attempt then
    local behind = tonumber(attempt) - tonumber(attempt_id)
    if behind == 1 and event == 'reassign' then return 'duplicate' end
    return behind > 0 and 'stale' or 'ahead'
  end
  local elsewhere = node_id ~= '-' and node ~= '-' and node_id ~= node
  if elsewhere and event ~= 'give_up' and event ~= 'released' then return 'other_node' end
  local column = (string.find(STATES, state, 1, true) + 10) / 11
  local cell = string.sub(row, column, column)
  if cell == '=' then return 'duplicate' end
  if cell == '<' then return 'early' end
  if cell == '!' then return 'ended' end
  if cell == '?' then
    local same = ended == event .. ':' .. outcome or (event == 'result' and string.sub(ended, 1, 7) == 'result:')
    return same and 'duplicate' or 'ended'
  end
  if event == 'result' and state == 'CREATED' and not string.find(flags, 'r') then return 'unplaced' end
  if string.find(flags, 'c') and counted + 1 >= tonumber(attempts_max) then return 'exhausted' end
  return 'applied', string.match(STATES, '%u+', cell * 11 - 10)
end

for event, row, outcome, keep, affinity, flags, code, reason in
  string.gmatch(steps, '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) ([^\n]*)\n') do
  local answer, to = judge(event, row, outcome, flags)
  reply[#reply + 1] = answer
  if to then
    if event == 'dispatched' or event == 'result' then node = node_id end
    if affinity ~= '-' then went = affinity end
    if keep ~= '-' then keep_ms = keep end
    if outcome ~= '-' then
      ended = event .. ':' .. outcome
      reply[5] = held[3] or ''
      redis.call('DEL', payload)
      if result_text ~= '' then redis.call('SET', result, result_text) end
    elseif event == 'reassign' then
      if node ~= '-' and string.find(flags, 'a') then
        local avoid = node .. ' ' .. (redis.call('HGET', fsm, 'avoid') or '')
        redis.call('HSET', fsm, 'avoid', string.sub(avoid, 1, AVOID_MAX))
      end
      if node ~= '-' and string.find(flags, 'c') and string.find(flags, 'l') then
        redis.call('HSET', fsm, 'lost', attempt .. ':' .. node .. ' ' .. (redis.call('HGET', fsm, 'lost') or ''))
      end
      redis.call('HSET', fsm, 'last_failure', reason, 'last_reason', attempt .. ':' .. code)
      if string.find(flags, 'c') then counted = tostring(counted + 1) end
      attempt, node, attempt_ms = tostring(attempt + 1), '-', now
    end
    state, state_ms, changed = to, now, true
    -- The first state and the release are in the record itself.
    if to ~= 'RELEASED' then
      entries[#entries + 1] = now .. '|' .. to .. '|' .. attempt .. '|' .. node .. '|' .. instance_id .. '|' .. reason
    end
  end
end

local at = table.concat({ attempt, counted, attempts_max, '1', node, state_ms, attempt_ms, ended }, ' ')
if changed then
  if kept == '0' then
    redis.call('PERSIST', fsm)
    redis.call('PERSIST', payload)
  end
  if went then
    redis.call('HSET', fsm, 'state', state, 'at', at, 'affinity', went)
  else
    redis.call('HSET', fsm, 'state', state, 'at', at)
  end
  if #entries > 0 and redis.call('RPUSH', timeline, unpack(entries)) > ENTRIES_MAX then
    redis.call('LTRIM', timeline, -ENTRIES_MAX, -1)
  end
  if keep_ms then
    redis.call('PEXPIRE', fsm, keep_ms)
    redis.call('PEXPIRE', result, keep_ms)
    redis.call('PEXPIRE', timeline, keep_ms)
  end
end
reply[2], reply[3] = state, at
return reply
