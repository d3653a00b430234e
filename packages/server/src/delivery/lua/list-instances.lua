-- Every instance whose inbox somebody must read, alive or not. Replies { 'listed', id, entry, id, entry, … }.

local all = KEYS[1]

local reply = redis.call('HGETALL', all)
table.insert(reply, 1, 'listed')
return reply
