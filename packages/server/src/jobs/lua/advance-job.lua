-- Apply what happened to one job, step by step. The table is fsm.ts'; each step brings its row of it, one letter per
-- state: a digit is the state it leads to, = duplicate, < early, ! ended, ? duplicate if the job ended just so.
--
-- Replies { 'absent' } or { 'answered', state, attempt_id, counted_attempts, node_id, former_node_id, outcome,
-- session_id, listeners, now_ms, answer of each step... }, where an absent text is ''.

local fsm, payload, result, timeline = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local result_text = ARGV[2]
-- args { attempt_id, node_id, instance_id, entries_max, avoid_max, steps: [{ event, row, set, outcome?, reason?, reserved?,
--        counts?, avoid?, keep_ms? }] }

local STATES = { 'CREATED', 'DISPATCHED', 'ACCEPTED', 'RUNNING', 'FINISHED', 'RELEASED',
  CREATED = 1, DISPATCHED = 2, ACCEPTED = 3, RUNNING = 4, FINISHED = 5, RELEASED = 6 }
local REFUSALS = { ['='] = 'duplicate', ['<'] = 'early', ['!'] = 'ended' }
local ANY_NODE = { give_up = true, released = true }

local held = redis.call('HMGET', fsm, 'state', 'attempt_id', 'node_id', 'ended_by', 'counted_attempts',
  'session_id', 'listeners', 'persisted', 'avoid', 'outcome', 'attempts_max')
if not held[1] or held[1] == 'VOID' then
  return { 'absent' }
end
local state, attempt, node, counted = held[1], tonumber(held[2]), held[3], tonumber(held[5])
local ended_by, outcome = held[4], held[10] or ''

local function judge(step)
  if args.attempt_id ~= attempt then
    if step.event == 'reassign' and args.attempt_id + 1 == attempt then return 'duplicate' end
    return args.attempt_id < attempt and 'stale' or 'ahead'
  end
  local elsewhere = args.node_id ~= '' and node ~= '' and args.node_id ~= node
  if elsewhere and not ANY_NODE[step.event] then return 'other_node' end
  local cell = string.sub(step.row, STATES[state], STATES[state])
  if cell == '?' then
    local same = ended_by == step.event and (step.event == 'result' or outcome == step.outcome)
    return same and 'duplicate' or 'ended'
  end
  if REFUSALS[cell] then return REFUSALS[cell] end
  if step.event == 'result' and state == 'CREATED' and not step.reserved then return 'unplaced' end
  if step.counts and counted + 1 >= tonumber(held[11]) then return 'exhausted' end
  return 'applied', STATES[tonumber(cell)]
end

local answers, changes, entries, now, keep_ms = {}, {}, {}, now_ms(), nil
local function set(field, value)
  changes[#changes + 1] = field
  changes[#changes + 1] = value
end
for index, step in ipairs(args.steps) do
  local answer, to = judge(step)
  answers[index] = answer
  if to then
    for at = 1, #step.set, 2 do set(step.set[at], step.set[at + 1]) end
    if step.event == 'reassign' then
      if step.avoid and node ~= '' then set('avoid', string.sub(node .. ' ' .. (held[9] or ''), 1, args.avoid_max)) end
      attempt, node, counted = attempt + 1, '', counted + (step.counts and 1 or 0)
      set('attempt_ms', now)
    elseif step.event == 'dispatched' or step.event == 'result' then
      node = args.node_id
    end
    if step.outcome then
      ended_by, outcome = step.event, step.outcome
      redis.call('DEL', payload)
      if result_text ~= '' then redis.call('SET', result, result_text) end
    end
    entries[#entries + 1] = table.concat({ now, to, attempt, node, args.instance_id, step.reason or '' }, '|')
    state, keep_ms = to, step.keep_ms
  end
end

if #entries > 0 then
  if not held[8] then
    redis.call('PERSIST', fsm)
    redis.call('PERSIST', payload)
    set('persisted', 1)
  end
  redis.call('HSET', fsm, 'state', state, 'attempt_id', attempt, 'node_id', node, 'counted_attempts', counted,
    'state_ms', now, unpack(changes))
  local length = redis.call('RPUSH', timeline, unpack(entries))
  if length > args.entries_max then redis.call('LTRIM', timeline, -args.entries_max, -1) end
  if keep_ms then
    for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, keep_ms) end
  end
end
return { 'answered', state, attempt, counted, node, held[3], outcome, held[6] or '', held[7] or '', now, unpack(answers) }
