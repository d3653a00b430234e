-- Run scripts one after the other. `find` knows each by its name: how many keys and arguments it takes, and itself.
-- Each stands for itself: one that fails does not keep the others from running.
--
-- Replies with their replies, an error for one that failed.

local found, replies, key, at = {}, {}, 1, 1
while at <= #ARGV do
  local name = ARGV[at]
  local script = found[name] or find(name)
  found[name] = script
  local keys, argv = {}, {}
  for index = 1, script[1] do keys[index] = KEYS[key + index - 1] end
  for index = 1, script[2] do argv[index] = ARGV[at + index] end
  key, at = key + script[1], at + 1 + script[2]
  local ok, reply = pcall(script[3], keys, argv)
  -- What Redis raises is a table with the error in it, or its text, by version.
  if not ok then reply = { err = type(reply) == 'table' and reply.err or tostring(reply) } end
  replies[#replies + 1] = reply
end
return replies
