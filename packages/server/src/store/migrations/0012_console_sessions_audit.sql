-- People who are signed in at the console. The browser has the id, this table only its SHA-256; role and tenant are the token's
-- at each request (access/console-sessions.ts).
create table console_session (
  id_sha256    text        primary key,
  token_name   text        not null,
  token_sha256 text        not null,
  created_at   timestamptz not null default tenure_now(),
  seen_at      timestamptz not null default tenure_now(),
  expires_at   timestamptz not null
);
create index console_session_token on console_session (token_sha256, created_at);

-- What all instances mark the ids of sessions with, so that one they did not make is refused without a query.
create table console_session_key (
  only_one boolean primary key default true check (only_one),
  key      text    not null
);
insert into console_session_key (key) values (gen_random_uuid()::text || gen_random_uuid()::text);

-- Who did what. Bounded by [audit] retention_days and entries_max (audit/audit-store.ts).
create table audit_entry (
  id            bigserial   primary key,
  at            timestamptz not null default tenure_now(),
  action        text        not null,
  outcome       text        not null default 'done',
  subject       text,
  actor_name    text        not null,
  actor_role    text        not null,
  actor_tenant  text        not null,
  actor_address text        not null,
  instance_id   text        not null,
  details       jsonb       not null default '{}'
);
create index audit_entry_at on audit_entry (at);
create index audit_entry_tenant on audit_entry (actor_tenant, id);
