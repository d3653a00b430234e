-- What should run, and which node-unit owns it now. Anybody may write here with SQL; the triggers below keep
-- what must hold whoever writes.
create table deployment (
  id              uuid        primary key default gen_random_uuid(),
  -- The id when nobody gave one.
  name            text        not null unique,
  package_name    text        not null default '',
  package_version text        not null default '',
  command         text        not null default '',
  args            jsonb       not null default '[]',
  env             jsonb       not null default '{}',
  -- The node-unit that owns it; '' is nobody.
  address         text        not null default '',
  enabled         boolean     not null default true,
  created_at      timestamptz not null default tenure_now(),
  updated_at      timestamptz not null default tenure_now(),
  -- Labels a node must carry. The name "address" stands for the node's own address.
  selector        jsonb       not null default '{}',
  lost_after_ms   int         not null default 0,
  -- The term of the owner. Rises at every change of it; whoever names an older one has been replaced.
  generation      bigint      not null default 0,
  -- Of the specification; rises whenever it changes.
  revision        int         not null default 1,
  -- A drain hands over one row at a time: who takes it next, and how far that is: 'installing' there, 'ready'
  -- there, 'stopped' here. Then the next node claims it.
  moving_to       text        not null default '',
  move_state      text        not null default '',
  -- The transaction that wrote the row last. A reader asks for what came after its last snapshot; a number
  -- from a sequence would not do, because transactions do not commit in the order they took their numbers.
  changed_xid     xid8        not null default pg_current_xact_id()
);
create index deployment_address on deployment (address);
create index deployment_changed_xid on deployment (changed_xid);
-- One row of an owner moves at a time, whoever asks.
create unique index deployment_moving on deployment (address) where moving_to <> '';

-- Rows that are gone, so that readers of changes hear of them. Kept for a day.
create table deployment_removed (
  id          uuid        not null,
  removed_at  timestamptz not null default tenure_now(),
  changed_xid xid8        not null default pg_current_xact_id()
);
create index deployment_removed_changed_xid on deployment_removed (changed_xid);

-- Former specifications, for a rollback.
create table deployment_revision (
  deployment_id uuid        not null references deployment on delete cascade,
  revision      int         not null,
  spec          jsonb       not null,
  replaced_at   timestamptz not null default tenure_now(),
  primary key (deployment_id, revision)
);

-- What a node says of a deployment: one row per node that ran it.
create table deployment_status (
  deployment_id uuid        not null references deployment on delete cascade,
  address       text        not null,
  state         text        not null,
  pid           int,
  restarts      int         not null default 0,
  exit_code     int,
  signal        text,
  last_error    text,
  spec_hash     text,
  generation    bigint      not null,
  started_at    timestamptz,
  updated_at    timestamptz not null default tenure_now(),
  changed_xid   xid8        not null default pg_current_xact_id(),
  primary key (deployment_id, address)
);
create index deployment_status_changed_xid on deployment_status (changed_xid);

-- What a rollback brings back: everything that says what to run, nothing that says where it is now.
create function tenure_deployment_spec(row_of deployment) returns jsonb language sql stable return
  to_jsonb(row_of) - array['id', 'name', 'address', 'enabled', 'created_at', 'updated_at', 'generation',
                           'revision', 'moving_to', 'move_state', 'changed_xid'];

create function tenure_deployment_written() returns trigger language plpgsql as $$
begin
  new.name := coalesce(nullif(new.name, ''), new.id::text);
  new.changed_xid := pg_current_xact_id();
  if tg_op = 'UPDATE' then
    -- Terms only rise, and another owner is another term, also when a person moves the row by hand.
    new.generation := greatest(new.generation, old.generation + (new.address <> old.address)::int);
    if new.address <> old.address then
      new.moving_to := '';
    end if;
    if tenure_deployment_spec(new) is distinct from tenure_deployment_spec(old) then
      new.revision := old.revision + 1;
      insert into deployment_revision (deployment_id, revision, spec)
      values (old.id, old.revision, tenure_deployment_spec(old))
      on conflict (deployment_id, revision) do nothing;
      delete from deployment_revision where deployment_id = old.id and revision <= old.revision - 50;
    end if;
  end if;
  if new.moving_to = '' then
    new.move_state := '';
  end if;
  return new;
end $$;
create trigger deployment_written before insert or update on deployment
  for each row execute function tenure_deployment_written();

create function tenure_deployment_deleted() returns trigger language plpgsql as $$
begin
  insert into deployment_removed (id) values (old.id);
  return null;
end $$;
create trigger deployment_deleted after delete on deployment
  for each row execute function tenure_deployment_deleted();

create function tenure_deployment_status_written() returns trigger language plpgsql as $$
begin
  new.changed_xid := pg_current_xact_id();
  return new;
end $$;
create trigger deployment_status_written before insert or update on deployment_status
  for each row execute function tenure_deployment_status_written();

-- Every instance keeps a copy of the list and is woken by a change of it. For each row, not for each
-- statement: a claim that found nothing free is a statement too, and would wake everybody for nothing.
create function tenure_tell_deployment() returns trigger language plpgsql as $$
begin
  notify tenure_deployment;
  return null;
end $$;
create trigger deployment_changed after insert or update or delete on deployment
  for each row execute function tenure_tell_deployment();
create trigger deployment_status_changed after insert or update on deployment_status
  for each row execute function tenure_tell_deployment();

-- What every instance notices is told by the first. Looking whether it was told is not enough: two instances
-- woken by one change look in the same instant and find nothing, both.
alter table event add column once_key text;
create unique index event_once on event (once_key) where once_key is not null;
