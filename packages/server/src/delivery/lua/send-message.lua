-- Put a message into an inbox, unless the inbox is closed or at its bound.
--
-- The bound is checked here and nowhere else: a `MAXLEN` on XADD would silently drop unread messages, and a check
-- outside would let concurrent senders exceed it. A closed inbox is not created here: it has to be on the list of inboxes
-- before its first message (open-inbox.lua).
--
-- Replies { 'sent', id } | { 'full', length } | { 'closed' }.

local inbox = KEYS[1]
-- args { message: string, length_max: number }

if redis.call('EXISTS', inbox) == 0 then
  return { 'closed' }
end
local length = redis.call('XLEN', inbox)
if length >= args.length_max then
  return { 'full', length }
end
return { 'sent', redis.call('XADD', inbox, '*', 'm', args.message, 't', now_ms()) }
