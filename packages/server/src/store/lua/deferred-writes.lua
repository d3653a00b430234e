-- Writes of a record that wait until the scripts of this batch have run, by key: several steps of one record are one write.
-- Redis runs the batch as a whole, so that no other client sees the record in between. A script that reads or changes such a
-- key in another way calls write_now(key) first. A script that runs alone writes at once.
local deferred = {}
local is_batch = false
-- In a batch: the number of the call that runs, and the errors of calls whose record could not be written, by their number.
local call_now, unwritten = 0, {}
local function write(key, record)
  local call = { 'HSET', key }
  for field, value in pairs(record.fields) do
    call[#call + 1] = field
    call[#call + 1] = value
  end
  redis.call(unpack(call))
  for text_key, text in pairs(record.texts) do
    local keep_ms = record.expiry[text_key]
    if keep_ms then
      redis.call('SET', text_key, text, 'PX', keep_ms)
    else
      redis.call('SET', text_key, text)
    end
    record.expiry[text_key] = nil
  end
  for each, keep_ms in pairs(record.expiry) do redis.call('PEXPIRE', each, keep_ms) end
end
-- A write that fails is an error of the calls that deferred it, and of the one that comes upon it; of no others.
local function write_now(key)
  local record = deferred[key]
  if not record then return end
  deferred[key] = nil
  local ok, problem = pcall(write, key, record)
  if ok then return end
  for _, call in ipairs(record.calls) do unwritten[call] = problem end
  error(problem, 0)
end
-- A record is { job, fields = by name, texts = by key, expiry = ms by key, calls }; job is for the scripts that defer,
-- calls are those whose steps wait in it.
local function write_later(key, record)
  if not is_batch then return write(key, record) end
  record.calls = record.calls or {}
  record.calls[#record.calls + 1] = call_now
  deferred[key] = record
end
