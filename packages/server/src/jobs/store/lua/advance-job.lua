-- Apply steps to one job, in order. The table is policy/job-table.ts; each step brings its row of it, one letter per
-- state: a digit is the next state, = duplicate, < early, ! ended, ? duplicate if the job ended in the same way.
--
-- Texts instead of JSON, and one field for everything that changes: the script runs several times for every job, and
-- names were three quarters of its cost. A step is a line: event, row, outcome, keep_ms, affinity, flags (r reserved,
-- c counts, a avoid, l lost), code, reason; - stands for none. The grammar is in store/job-codec.ts, also what code is. The timeline is a
-- field; instances up to 0.1 write the list `timeline`, and a field that begins with + stands beside such a list.
--
-- Replies { 'absent' } or { 'answered', state, at, former node, listeners, now_ms, answer of each step... };
-- listeners are given to the call that ended the job, '' to others.

local fsm, payload, result, timeline = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local attempt_id, node_id, instance_id, steps, result_text = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local STATES = 'CREATED    DISPATCHED ACCEPTED   RUNNING    FINISHED   RELEASED   '
local ENTRIES_MAX, AVOID_MAX = 64, 400

local record = deferred[fsm]
local held = record and record.held or redis.call('HMGET', fsm, 'state', 'at', 'listeners', 'timeline', 'created_ms', 'spec', 'taken')
if not held[2] then
  return { 'absent' }
end
local state = held[1]
local attempt, counted, attempts_max, kept, node, state_ms, attempt_ms, ended =
  string.match(held[2], '(%d+) (%d+) (%d+) (%d) (%S+) (%d+) (%d+) (%S+)')
local now = tostring(now_ms())
local reply = { 'answered', '', '', node, '', now }
local went, taken, keep_ms, changed, has_ended = nil, nil, nil, false, false
-- The field timeline, as it will be.
local entries = held[4] or ''
local created_ms, spec = tonumber(held[5]), held[6]

-- An instance of 0.1 writes to the list: then the last entry here is not the state of the record.
local last_ms, letter = string.match('\n' .. entries, '.*\n(%d+) (%u) ')
local is_new_job = entries == '' and state == 'CREATED' and attempt == '1'
local is_behind = not is_new_job
  and not (last_ms and created_ms + last_ms == tonumber(state_ms) and letter == string.sub(state, 1, 1))
if is_behind and string.sub(entries, 1, 1) ~= '+' then entries = '+\n' .. entries end
local origin = string.match(spec, '"originInstanceId":"([^"]*)"')
local writer = string.match('\n' .. entries, '.*\n@([^\n]*)\n') or origin

-- Keep the newest entries. The first of them names its node and its instance, which may stand before it.
local function shorten()
  local _, lines = string.gsub(entries, '\n', '\n')
  if lines <= ENTRIES_MAX then return end
  local kept, node_there, by, from = {}, '-', '@' .. (origin or ''), nil
  for line in string.gmatch(entries, '[^\n]+') do
    local first = string.sub(line, 1, 1)
    if first == '@' then
      by = line
    elseif first ~= '+' then
      local before, node_word, after = string.match(line, '^(%d+ %u %d+ )(%S+)(.*)$')
      if node_word ~= '=' then node_there = node_word end
      kept[#kept + 1] = { by, before .. node_there .. after, line }
    end
  end
  from = math.max(1, #kept - ENTRIES_MAX + 1)
  local text = { string.sub(entries, 1, 1) == '+' and '+' or nil }
  for index = from, #kept do
    if index == from or kept[index][1] ~= kept[index - 1][1] then text[#text + 1] = kept[index][1] end
    text[#text + 1] = kept[index][index == from and 2 or 3]
  end
  entries = table.concat(text, '\n') .. '\n'
end

local function note(to, former, reason, since)
  if writer ~= instance_id then
    writer = instance_id
    entries = entries .. '@' .. writer .. '\n'
  end
  local words = { string.format('%d', since - created_ms), string.sub(to, 1, 1), attempt, node == former and not is_behind and '=' or node, reason }
  is_behind = false
  entries = entries .. table.concat(words, ' ') .. '\n'
end

-- Leave out of a released record what no reader needs, and its node, which is in the record.
local function trim()
  spec = string.gsub(spec, '"bodyHash":"[^"]*",', '')
  spec = string.gsub(spec, '"turn":false,', '')
  for _, name in ipairs({ 'pending', 'ack', 'run' }) do
    spec = string.gsub(spec, ',"' .. name .. 'TimeoutMs":%d+', '')
  end
  local lines = {}
  for line in string.gmatch(entries, '[^\n]+') do
    local before, word, reason = string.match(line, '^(%d+ %u %d+ )(%S+)(.*)$')
    lines[#lines + 1] = word == node and node ~= '-' and before .. '~' .. reason or line
  end
  entries = table.concat(lines, '\n') .. (#lines > 0 and '\n' or '')
end

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
    local former = node
    if event == 'dispatched' or event == 'result' then node = node_id end
    if affinity ~= '-' then went = affinity end
    local since = now
    if event == 'dispatched' and code ~= '-' then
      taken = attempt .. ':' .. code
    elseif code ~= '-' and (event == 'ack' or event == 'started') then
      since = string.format('%.0f', math.max(tonumber(state_ms), tonumber(now) - tonumber(code)))
    end
    if keep ~= '-' then keep_ms = keep end
    if outcome ~= '-' then
      ended = event .. ':' .. outcome
      reply[5] = held[3] or ''
      has_ended = true
    elseif event == 'reassign' then
      write_now(fsm)
      record = nil
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
    state, state_ms, changed = to, since, true
    -- The first state and the release are in the record itself.
    if to ~= 'RELEASED' then note(to, former, reason, since) end
  end
end

local at = table.concat({ attempt, counted, attempts_max, '1', node, state_ms, attempt_ms, ended }, ' ')
if changed then
  local is_new = record and record.expiry[fsm] and kept == '0'
  if is_new then
    record.expiry = {}
  elseif kept == '0' then
    redis.call('PERSIST', fsm)
    redis.call('PERSIST', payload)
  end
  record = record or { fields = {}, texts = {}, expiry = {} }
  if has_ended then
    if record.texts[payload] then record.texts[payload] = nil else redis.call('DEL', payload) end
    if result_text ~= '' then record.texts[result] = result_text end
  end
  shorten()
  if state == 'RELEASED' then
    trim()
    record.fields.spec = spec
    -- Emptied with the same HSET; HDEL would be one more command for each job.
    if (taken or held[7] or '') ~= '' then taken = '' end
  end
  record.held = { state, at, held[3], entries, held[5], spec, taken or held[7] }
  record.fields.state, record.fields.at = state, at
  if taken then record.fields.taken = taken end
  if entries ~= (held[4] or '') then record.fields.timeline = entries end
  -- Most jobs have no turn; the reader knows it without a field.
  local has_turn = string.find(spec, '"turn":true', 1, true)
  if went and (has_turn or went ~= 'no_turn') then record.fields.affinity = went end
  if keep_ms then
    record.expiry[fsm], record.expiry[result] = keep_ms, keep_ms
    if string.sub(entries, 1, 1) == '+' then record.expiry[timeline] = keep_ms end
  end
  write_later(fsm, record)
end
reply[2], reply[3] = state, at
return reply
