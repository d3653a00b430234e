-- Tokens that admins create while the fleet runs, beside those of the settings. A row has only the SHA-256 of its secret.
create table token (
  id             uuid        primary key default gen_random_uuid(),
  name           text        not null,
  role           text        not null,
  tenant         text        not null default 'default',
  -- What it is limited to: signers, pools, addresses, tenants, labels, node_unit, capacity_max, nodes_max, node_name. A row with
  -- another field, or with a value that is not valid, grants nothing (access/token-codec.ts).
  scopes         jsonb       not null default '{}',
  sha256         text        not null unique check (sha256 ~ '^[0-9a-f]{64}$'),
  -- The secret before the last rotation, until its grace is over.
  former_sha256  text,
  former_until   timestamptz,
  created_at     timestamptz not null default tenure_now(),
  created_by     text        not null default '',
  expires_at     timestamptz,
  revoked_at     timestamptz,
  -- At most once a minute per instance; not a change for readers.
  last_used_at   timestamptz,
  -- A join token enrols one node: which one, and the secret that the node made.
  is_join        boolean     not null default false,
  used_at        timestamptz,
  used_address   text,
  used_sha256    text,
  -- The value of token_change when the row was written last.
  version        bigint      not null default 0
);
create index token_tenant on token (tenant, id);
create index token_version on token (version);

-- What readers compare now and then, to notice rows that were written with triggers off and a restored copy.
create function tenure_token_hash(row_of token) returns text language sql stable return
  hashtextextended((to_jsonb(row_of) - 'last_used_at')::text, 0)::text;

-- One row, locked by every writer until it commits: a version that a reader sees has all rows of smaller versions.
create table token_change (
  only_one boolean primary key default true check (only_one),
  version  bigint  not null default 0,
  -- The version of the last deletion: a reader that is older reads all rows.
  deleted  bigint  not null default 0
);
insert into token_change default values;

-- Once per statement: thousands of updates of one row in a transaction would take minutes.
create function tenure_token_writing() returns trigger language plpgsql as $$
begin
  update token_change set version = token_change.version + 1;
  perform pg_notify('tenure_token', '');
  return null;
end $$;
create function tenure_token_written() returns trigger language plpgsql as $$
begin
  select token_change.version into new.version from token_change;
  return new;
end $$;

-- Not of last_used_at, which would wake every instance each minute.
create trigger token_writing
  before insert or update of id, name, role, tenant, scopes, sha256, former_sha256, former_until, expires_at, revoked_at,
    is_join, used_at, used_address, used_sha256
  on token for each statement execute function tenure_token_writing();
create trigger token_written
  before insert or update of id, name, role, tenant, scopes, sha256, former_sha256, former_until, expires_at, revoked_at,
    is_join, used_at, used_address, used_sha256
  on token for each row execute function tenure_token_written();

create function tenure_token_deleted() returns trigger language plpgsql as $$
begin
  if not exists (select from gone) then return null; end if;
  update token_change set version = token_change.version + 1, deleted = token_change.version + 1;
  perform pg_notify('tenure_token', '');
  return null;
end $$;
create trigger token_deleted after delete on token referencing old table as gone
  for each statement execute function tenure_token_deleted();
create function tenure_tokens_truncated() returns trigger language plpgsql as $$
begin
  update token_change set version = token_change.version + 1, deleted = token_change.version + 1;
  perform pg_notify('tenure_token', '');
  return null;
end $$;
create trigger token_truncated after truncate on token for each statement execute function tenure_tokens_truncated();
