-- Apply steps to one job, in order and atomically. The table is policy/job-table.ts; each step brings its row of it, one letter
-- per state: a digit is the next state, = duplicate, < early, ! ended, ? duplicate if the job ended in the same way.
--
-- Texts instead of JSON, and one field for everything that changes: the script runs several times for every job, and
-- names were three quarters of its cost. A step is a line: event, row, outcome, keep_ms, affinity, flags (r reserved,
-- c counts, a avoid, l lost), code, reason; - stands for none. The grammar is in store/job-codec.ts, also what code is. The
-- timeline is a field; instances up to 0.1 write the list `timeline`, and a field that begins with + stands beside such a list.
--
-- Replies { 'absent' } or { 'answered', state, at, former node, listeners, now_ms, answer of each step... };
-- listeners are given to the call that ended the job, '' to others.

local STATES = { 'CREATED', 'DISPATCHED', 'ACCEPTED', 'RUNNING', 'FINISHED', 'RELEASED' }
local COLUMNS = { CREATED = 1, DISPATCHED = 2, ACCEPTED = 3, RUNNING = 4, FINISHED = 5, RELEASED = 6 }
local ENTRIES_MAX, ENTRY_LENGTH_MIN, BEFORE_NODE_MAX, AVOID_MAX = 64, 9, 32, 400

-- Jobs of one batch often bring the same steps.
local read_before = {}
local function read_steps(text)
  local steps = read_before[text]
  if steps then return steps end
  steps = {}
  for event, row, outcome, keep, affinity, flags, code, reason in
    string.gmatch(text, '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) ([^\n]*)\n') do
    steps[#steps + 1] = {
      event = event, row = row, outcome = outcome, keep = keep, affinity = affinity, code = code, reason = reason,
      is_reserved = string.find(flags, 'r', 1, true), counts = string.find(flags, 'c', 1, true),
      avoids = string.find(flags, 'a', 1, true), is_lost = string.find(flags, 'l', 1, true),
    }
  end
  read_before[text] = steps
  return steps
end

-- The record as fields of a table. A later script of the batch gets the same table.
local function read_job(fsm)
  local held = redis.call('HMGET', fsm, 'state', 'at', 'listeners', 'timeline', 'created_ms', 'spec', 'taken')
  if not held[2] then return nil end
  local attempt, counted, attempts_max, kept, node, state_ms, attempt_ms, ended =
    string.match(held[2], '(%d+) (%d+) (%d+) (%d) (%S+) (%d+) (%d+) (%S+)')
  local job = {
    state = held[1], attempt = attempt, counted = counted, attempts_max = attempts_max, kept = kept, node = node,
    state_ms = state_ms, attempt_ms = attempt_ms, ended = ended, listeners = held[3] or '', entries = held[4] or '',
    created_ms = tonumber(held[5]), spec = held[6], taken = held[7] or '',
  }
  -- An instance of 0.1 writes to the list: then the last entry here is not the state of the record.
  local last_ms, letter = string.match('\n' .. job.entries, '.*\n(%-?%d+) (%u) ')
  local is_new = job.entries == '' and job.state == 'CREATED' and attempt == '1'
  job.is_behind = not is_new
    and not (last_ms and job.created_ms + last_ms == tonumber(state_ms) and letter == string.sub(job.state, 1, 1))
  if job.is_behind and string.sub(job.entries, 1, 1) ~= '+' then job.entries = '+\n' .. job.entries end
  return job
end

local function origin_of(job)
  return string.match(job.spec, '"originInstanceId":"([^"]*)"')
end

-- The instance that wrote the last entry.
local function writer_of(job)
  if not job.writer then
    local is_noted = string.find(job.entries, '@', 1, true)
    job.writer = is_noted and string.match('\n' .. job.entries, '.*\n@([^\n]*)\n') or origin_of(job)
  end
  return job.writer
end

-- Keep the newest entries. The first of them names its node and its instance, which may stand before it.
local function shorten(job)
  if #job.entries <= ENTRIES_MAX * ENTRY_LENGTH_MIN then return end
  local _, lines = string.gsub(job.entries, '\n', '\n')
  if lines <= ENTRIES_MAX then return end
  local kept, node_there, by = {}, '-', '@' .. (origin_of(job) or '')
  for line in string.gmatch(job.entries, '[^\n]+') do
    local first = string.sub(line, 1, 1)
    if first == '@' then
      by = line
    elseif first ~= '+' then
      local before, node_word, after = string.match(line, '^(%-?%d+ %u %d+ )(%S+)(.*)$')
      if node_word ~= '=' then node_there = node_word end
      kept[#kept + 1] = { by, before .. node_there .. after, line }
    end
  end
  local from = math.max(1, #kept - ENTRIES_MAX + 1)
  local text = { string.sub(job.entries, 1, 1) == '+' and '+' or nil }
  for index = from, #kept do
    if index == from or kept[index][1] ~= kept[index - 1][1] then text[#text + 1] = kept[index][1] end
    text[#text + 1] = kept[index][index == from and 2 or 3]
  end
  job.entries = table.concat(text, '\n') .. '\n'
end

local function note(job, instance_id, former, reason)
  local by = ''
  if writer_of(job) ~= instance_id then
    job.writer = instance_id
    by = '@' .. instance_id .. '\n'
  end
  local node = job.node == former and not job.is_behind and '=' or job.node
  job.is_behind = false
  local since = string.format('%d', job.state_ms - job.created_ms)
  job.entries = job.entries .. by .. since .. ' ' .. string.sub(job.state, 1, 1) .. ' ' .. job.attempt .. ' ' .. node .. ' ' .. reason .. '\n'
end

-- Leave out of a released record what no reader needs: the end of its specification, and its node in the timeline.
local function trim(job)
  local spec = job.spec
  local from = string.find(spec, ',"turn":false,"bodyHash":', 1, true) or string.find(spec, ',"bodyHash":', 1, true)
  if from then job.spec = string.sub(spec, 1, from - 1) .. '}' end
  if job.node == '-' then return end
  local word, from_node, to_node = ' ' .. job.node .. ' ', 0, 0
  while true do
    from_node, to_node = string.find(job.entries, word, from_node + 1, true)
    if not from_node then return end
    -- The fourth word of a line; a reason can contain the same text.
    local before = string.sub('\n' .. job.entries, math.max(1, from_node - BEFORE_NODE_MAX), from_node + 1)
    if string.find(before, '\n%-?%d+ %u %d+ $') then
      job.entries = string.sub(job.entries, 1, from_node) .. '~' .. string.sub(job.entries, to_node)
    end
  end
end

local function judge(job, step, attempt_id, node_id)
  local event, state = step.event, job.state
  if attempt_id ~= job.attempt then
    local behind = tonumber(job.attempt) - tonumber(attempt_id)
    if behind == 1 and event == 'reassign' then return 'duplicate' end
    return behind > 0 and 'stale' or 'ahead'
  end
  local elsewhere = node_id ~= '-' and job.node ~= '-' and node_id ~= job.node
  if elsewhere and event ~= 'give_up' and event ~= 'released' then return 'other_node' end
  local column = COLUMNS[state]
  local cell = string.sub(step.row, column, column)
  if cell == '=' then return 'duplicate' end
  if cell == '<' then return 'early' end
  if cell == '!' then return 'ended' end
  if cell == '?' then
    local same = job.ended == event .. ':' .. step.outcome or (event == 'result' and string.sub(job.ended, 1, 7) == 'result:')
    return same and 'duplicate' or 'ended'
  end
  if event == 'result' and state == 'CREATED' and not step.is_reserved then return 'unplaced' end
  if step.counts and job.counted + 1 >= tonumber(job.attempts_max) then return 'exhausted' end
  return 'applied', STATES[tonumber(cell)]
end

local function reassign(fsm, job, step, now)
  write_now(fsm)
  if job.node ~= '-' and step.avoids then
    local avoid = job.node .. ' ' .. (redis.call('HGET', fsm, 'avoid') or '')
    redis.call('HSET', fsm, 'avoid', string.sub(avoid, 1, AVOID_MAX))
  end
  if job.node ~= '-' and step.counts and step.is_lost then
    redis.call('HSET', fsm, 'lost', job.attempt .. ':' .. job.node .. ' ' .. (redis.call('HGET', fsm, 'lost') or ''))
  end
  redis.call('HSET', fsm, 'last_failure', step.reason, 'last_reason', job.attempt .. ':' .. step.code)
  if step.counts then job.counted = tostring(job.counted + 1) end
  job.attempt, job.node, job.attempt_ms = tostring(job.attempt + 1), '-', now
end

local fsm, payload, result, timeline = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local attempt_id, node_id, instance_id, steps, result_text = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local record = deferred[fsm]
local job = record and record.job or read_job(fsm)
if not job then
  return { 'absent' }
end
local now = tostring(now_ms())
local reply = { 'answered', '', '', job.node, '', now }
local went, keep_ms, changed, has_ended = nil, nil, false, false
local entries, taken, kept = job.entries, job.taken, job.kept

for _, step in ipairs(read_steps(steps)) do
  local answer, to = judge(job, step, attempt_id, node_id)
  reply[#reply + 1] = answer
  if to then
    local event, code, former, since = step.event, step.code, job.node, now
    if event == 'dispatched' or event == 'result' then job.node = node_id end
    if step.affinity ~= '-' then went = step.affinity end
    if event == 'dispatched' and code ~= '-' then
      job.taken = job.attempt .. ':' .. code
    elseif code ~= '-' and (event == 'ack' or event == 'started') then
      since = string.format('%.0f', math.max(tonumber(job.state_ms), tonumber(now) - tonumber(code)))
    end
    if step.keep ~= '-' then keep_ms = step.keep end
    if step.outcome ~= '-' then
      job.ended = event .. ':' .. step.outcome
      reply[5] = job.listeners
      has_ended = true
    elseif event == 'reassign' then
      reassign(fsm, job, step, now)
      record = nil
    end
    job.state, job.state_ms, changed = to, since, true
    -- The first state and the release are in the record itself.
    if to ~= 'RELEASED' then note(job, instance_id, former, step.reason) end
  end
end

if changed then job.kept = '1' end
local at = job.attempt .. ' ' .. job.counted .. ' ' .. job.attempts_max .. ' ' .. job.kept .. ' ' .. job.node .. ' '
  .. job.state_ms .. ' ' .. job.attempt_ms .. ' ' .. job.ended
if changed then
  if record and record.expiry[fsm] and kept == '0' then
    record.expiry = {}
  elseif kept == '0' then
    redis.call('PERSIST', fsm)
    redis.call('PERSIST', payload)
  end
  record = record or { fields = {}, texts = {}, expiry = {} }
  record.job = job
  if has_ended then
    if record.texts[payload] then record.texts[payload] = nil else redis.call('DEL', payload) end
    if result_text ~= '' then record.texts[result] = result_text end
  end
  shorten(job)
  local fields = record.fields
  if job.state == 'RELEASED' then
    trim(job)
    fields.spec = job.spec
    -- Emptied with the same HSET; HDEL would be one more command for each job.
    job.taken = ''
  end
  fields.state, fields.at = job.state, at
  if job.taken ~= taken then fields.taken = job.taken end
  if job.entries ~= entries then fields.timeline = job.entries end
  -- Most jobs have no turn; the reader knows it without a field.
  if went and (went ~= 'no_turn' or string.find(job.spec, '"turn":true', 1, true)) then fields.affinity = went end
  if keep_ms then
    record.expiry[fsm], record.expiry[result] = keep_ms, keep_ms
    if string.sub(job.entries, 1, 1) == '+' then record.expiry[timeline] = keep_ms end
  end
  write_later(fsm, record)
end
reply[2], reply[3] = job.state, at
return reply
