-- The time of the server that keeps this inbox, which decides deadlines. Replies { 'time', now_ms }.

local inbox = KEYS[1]

return { 'time', now_ms() }
