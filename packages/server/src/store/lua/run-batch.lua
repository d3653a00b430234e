-- Run scripts one after the other. `find` knows each by its name: how many keys and arguments it takes, and itself.
-- One that fails does not keep the others from running. Before a name there may be
--   ?call place word ...       run it only if each of these words stands at this place of the reply of this call (* any word)
--   &argument call place word ...  of this argument, a list, keep only the words whose condition holds (call 0: none needed);
--                              without one left, do not run it
--
-- What the scripts deferred is written at the end (deferred-writes.lua). A condition on a call whose write waits sees its
-- reply: the script has read the record, so that its type is known to be right, and what Redis refuses as a whole (no memory,
-- no disk, a replica) it refuses at the first write of a batch. If that write fails all the same, what depends on the call has
-- run, with a reply of its own, and the call fails: its caller cannot know how far it came, as if the connection had broken.
--
-- Replies with their replies, an error for one that failed, nil for one that was not run.

local found, replies, count, key, at = {}, {}, 0, 1, 1

local function holds(call, place, word)
  local number = tonumber(call)
  local reply = not unwritten[number] and replies[number]
  local held = type(reply) == 'table' and reply[tonumber(place)]
  return held and (word == '*' or tostring(held) == word)
end

-- What Redis raises is a table with the error in it, or its text, by version.
local function error_reply(problem)
  return { err = type(problem) == 'table' and problem.err or tostring(problem) }
end

local function all_hold(conditions)
  for call, place, word in string.gmatch(conditions, '(%d+) (%d+) (%S+)') do
    if not holds(call, place, word) then return false end
  end
  return true
end

local function kept(text, conditions)
  local next_word, words = string.gmatch(text, '%S+'), {}
  for call, place, word in string.gmatch(conditions, ' (%d+) (%d+) (%S+)') do
    local each = next_word()
    if call == '0' or holds(call, place, word) then words[#words + 1] = each end
  end
  return table.concat(words, ' ')
end

while at <= #ARGV do
  local name, wanted, listed, conditions = ARGV[at], true, nil, nil
  if string.byte(name) == 63 then
    wanted = all_hold(name)
    at = at + 1
    name = ARGV[at]
  end
  if string.byte(name) == 38 then
    listed, conditions = string.match(name, '(%d+)(.*)')
    at = at + 1
    name = ARGV[at]
  end
  local script = found[name] or find(name)
  found[name] = script
  local reply = false
  if wanted then
    local keys, argv = {}, {}
    for index = 1, script[1] do keys[index] = KEYS[key + index - 1] end
    for index = 1, script[2] do argv[index] = ARGV[at + index] end
    if listed then
      listed = tonumber(listed)
      argv[listed] = kept(argv[listed], conditions)
      wanted = argv[listed] ~= ''
    end
    if wanted then
      local ok
      call_now = count + 1
      ok, reply = pcall(script[3], keys, argv)
      if not ok then reply = error_reply(reply) end
    end
  end
  key, at = key + script[1], at + 1 + script[2]
  count = count + 1
  replies[count] = reply
end
for each in pairs(deferred) do pcall(write_now, each) end
for call, problem in pairs(unwritten) do replies[call] = error_reply(problem) end
return replies
