-- Every connection of a node or a session gets the next number, wherever it connects: of two connections of
-- one node the higher number is the later one, on any instance.
create sequence connection_epoch;

-- The node-units, present or not. Written by instances only.
create table node_unit (
  address                text        primary key,
  name                   text        not null,
  version                text        not null default '',
  instance_id            text        not null,
  boot_id                uuid        not null,
  epoch                  bigint      not null,
  online                 boolean     not null,
  -- Renewed while the node answers. A node-unit is present while it is online and this has not passed.
  presence_expires_at    timestamptz not null,
  left_at                timestamptz,
  claim_policy           text        not null default 'deployment_count',
  labels                 jsonb       not null default '{}',
  trusted_package_regexp text        not null default '',
  custom_command         boolean     not null default false,
  -- Set by an operator; survives the node's own restarts.
  draining               boolean     not null default false,
  tags                   jsonb       not null default '{}',
  joined_at              timestamptz not null
);

-- Everybody who watches the fleet is woken by a change of it. A renewal of presence is none: it touches no
-- column named here. For each row, because a statement that changed no row fires a statement's trigger too,
-- and whoever is woken asks again: instances would wake each other without end.
create function tenure_tell_membership() returns trigger language plpgsql as $$
begin
  notify tenure_membership;
  return null;
end $$;
create trigger node_unit_changed
  after insert or delete or update of instance_id, boot_id, epoch, online, claim_policy, labels,
    trusted_package_regexp, custom_command, draining, tags, name
  on node_unit for each row execute function tenure_tell_membership();

-- The mass-loss brake, one row. While it is active no deployment is taken from a lost node.
create table membership_brake (
  singleton   boolean     primary key default true check (singleton),
  active      boolean     not null default false,
  since       timestamptz,
  lost        int         not null default 0,
  members     int         not null default 0,
  -- Losses before this moment were judged by an operator and count no more.
  released_at timestamptz not null default '-infinity'
);
insert into membership_brake default values;
create trigger membership_brake_changed
  after update on membership_brake for each row execute function tenure_tell_membership();

-- Whoever follows the events is woken by a new one.
create function tenure_tell_event() returns trigger language plpgsql as $$
begin
  notify tenure_event;
  return null;
end $$;
create trigger event_appended after insert on event for each row execute function tenure_tell_event();
