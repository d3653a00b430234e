-- Every node that is on the list. Replies { 'listed', node... }.

local all = KEYS[1]

local reply = redis.call('SMEMBERS', all)
table.insert(reply, 1, 'listed')
return reply
