-- Leases compare times from one clock only, the database's. Every statement asks tenure_now() for it, and
-- tests replace this function with one they can move. Not now() (when the transaction began) and not
-- statement_timestamp() (when the statement began): a statement that waited for a row lock must judge the
-- lease by the time it goes on. Volatile, so that the condition is asked again when the row is re-checked.
create function tenure_now() returns timestamptz language sql volatile return clock_timestamp();

-- Who is alive. An instance that stops renewing is gone when expires_at has passed, whatever it believes.
create table instance (
  instance_id text        primary key,
  -- Random per process: the same instance_id after a restart is another boot.
  boot_id     uuid        not null,
  url         text        not null,
  version     text        not null,
  started_at  timestamptz not null default tenure_now(),
  expires_at  timestamptz not null
);

-- What happened, for people. Append-only, kept for 30 days.
create table event (
  id      bigserial   primary key,
  at      timestamptz not null default tenure_now(),
  -- Named noun.past-participle, as in the logs.
  event   text        not null,
  -- The error code, when it is one.
  code    text,
  message text        not null,
  -- The thing it is about, e.g. a node's address. Absent when it is about the whole fleet.
  subject text,
  details jsonb       not null default '{}'
);
create index event_at on event (at);
create index event_subject on event (subject, id);
