-- The time of the Redis server of this inbox, which deadlines are compared with. Replies { 'time', now_ms }.

local inbox = KEYS[1]

return { 'time', now_ms() }
