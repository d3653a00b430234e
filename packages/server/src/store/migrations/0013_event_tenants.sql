-- Nothing uses these: `tenure_serves` and `tenure_share` compare with the tenants of the caller.
drop function tenure_in_scope(text, text);
drop function tenure_in_scope(text[], text);

-- Whether two lists of tenants have one in common.
create function tenure_share(tenants text[], others text[]) returns boolean language sql immutable return
  coalesce(tenants, '{default}'::text[]) && others or '*' = any (tenants) or '*' = any (others);

-- The event of a delete is written after the row is gone.
alter table deployment_removed add column tenant text not null default 'default';
create or replace function tenure_deployment_deleted() returns trigger language plpgsql as $$
begin
  insert into deployment_removed (id, tenant) values (old.id, old.tenant);
  return null;
end $$;
create index deployment_removed_id on deployment_removed (id);

-- Who sees an event: the tenant of the deployment or signer that it is about, or those of the node-unit. The kind of the
-- event decides which of them its subject names: a tenant chooses the names of its signers, and one may be the name of an
-- instance. Every other event belongs to the fleet ('{}'), and only operators see it; so does the move of a signer, which
-- names both tenants. By a trigger, so that no writer can forget it, nor an instance of 0.1.0. Null: older than this
-- column, and of `default`.
alter table event add column tenants text[];
create function tenure_event_tenants(event text, about text) returns text[] language sql stable return
  coalesce(
    case when event = 'signer.moved' then '{}'
         when split_part(event, '.', 1) in ('deployment', 'daemon', 'status')
              and about ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
         then coalesce((select array[tenant] from deployment where id = about::uuid),
                       (select array[tenant] from deployment_removed where id = about::uuid
                         order by removed_at desc limit 1))
         when split_part(event, '.', 1) = 'node'
         then (select tenure_tenants_of(node_unit) from node_unit where address = about)
         when split_part(event, '.', 1) in ('signer', 'nonce', 'lease', 'write')
         then (select array[tenant] from signer_lease where signer = about) end,
    '{}');
create function tenure_event_written() returns trigger language plpgsql as $$
begin
  if new.tenants is null then
    new.tenants := tenure_event_tenants(new.event, new.subject);
  end if;
  return new;
end $$;
create trigger event_written before insert on event
  for each row execute function tenure_event_written();

-- A tenant that no token can name would take a running deployment from its node. Rows from before this are not checked.
alter table deployment add constraint deployment_tenant_check
  check (tenant ~ '^[A-Za-z0-9._:/@-]{1,128}$') not valid;

-- The mass-loss brake of each tenant, one row while it is on. A loss among the node-units that serve a tenant stops the
-- releases of its deployments only: a node token must not stop the fail-over of other tenants.
create table tenant_brake (
  tenant     text        primary key,
  since      timestamptz not null,
  -- The last change of the counts.
  changed_at timestamptz not null,
  lost       int         not null,
  members    int         not null
);
-- `membership_brake` has their sum, for readers of the table and for instances of 0.1.0: whether any is on, and the
-- largest counts. Its `released_at` counts for all.
create function tenure_tenant_brake_written() returns trigger language plpgsql as $$
begin
  update membership_brake
     set (active, since, lost, members) =
         (select count(*) > 0, min(tenant_brake.since), coalesce(max(tenant_brake.lost), 0), coalesce(max(tenant_brake.members), 0)
            from tenant_brake);
  return null;
end $$;
create trigger tenant_brake_written after insert or update or delete on tenant_brake
  for each row execute function tenure_tenant_brake_written();
insert into tenant_brake (tenant, since, changed_at, lost, members)
select 'default', coalesce(since, tenure_now()), coalesce(changed_at, since, tenure_now()), lost, members
  from membership_brake where active;

-- As before, but a deployment that the node-unit does not serve, and which only names it in a pin, does not make it count.
create or replace function tenure_brake_counts(unit_address text, presence interval) returns boolean language sql stable return
  presence >= interval '1 hour'
  or exists (select from deployment join node_unit using (address)
              where deployment.address = unit_address and deployment.type = 'deployment'
                and tenure_serves(tenure_tenants_of(node_unit), deployment.tenant))
  or exists (select from deployment_status join deployment on deployment.id = deployment_status.deployment_id
              where deployment_status.address = unit_address and deployment.type = 'deployment');

-- `tenure_losses` among the node-units that serve one tenant.
create function tenure_losses(since timestamptz, silence timestamptz, served text, out lost bigint, out present bigint)
language plpgsql as $$
declare
  v_now timestamptz := tenure_now();
begin
  select count(*) into lost
    from (select address, joined_at, lost_at, tenants from node_unit_now where online and lost_at between since and v_now
          union all
          select address, joined_at, left_at, tenure_tenants_of(node_unit) from node_unit
           where not online and left_at between since and v_now
          union all
          select address, joined_at, v_now, tenants from node_unit_now
           where online and lost_at > v_now and coalesce(renewed_at, '-infinity') <= silence) as unit
   where tenure_serves(tenants, served) and tenure_brake_counts(address, lost_at - joined_at);
  present := 0;
  if lost > 0 then
    select count(*) into present
      from node_unit_now
     where online and lost_at > v_now and (coalesce(renewed_at, '-infinity') <= silence) is not true
       and tenure_serves(tenants, served) and tenure_brake_counts(address, v_now - joined_at);
  end if;
end $$;

-- One row of an owner moves at a time for each tenant: one tenant's hand-over does not hold up another's. A row that goes to
-- another tenant ends its hand-over.
drop index deployment_moving;
create unique index deployment_moving on deployment (address, tenant) where moving_to <> '';
create or replace function tenure_deployment_named() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and new.tenant <> old.tenant then
    new.moving_to := '';
    new.move_state := '';
    if new.name = old.name then
      new.name := tenure_deployment_name(old);
    end if;
  end if;
  if new.tenant <> 'default' and not starts_with(new.name, new.tenant || ' ') then
    new.name := tenure_stored_name(new.tenant, new.name);
  end if;
  return new;
end $$;
