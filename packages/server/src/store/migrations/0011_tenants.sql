-- Everything a person reads or writes belongs to a tenant. What exists belongs to `default`, and so does what an instance
-- of 0.1.0 writes, which does not know the columns.

-- Whose jobs and deployments a node-unit runs, and the connection that said so. An instance of 0.1.0 writes another epoch
-- and leaves both: then the node-unit serves `default`.
alter table node_unit
  add column tenants       text[] not null default '{default}',
  add column tenants_epoch bigint not null default 0;

create function tenure_tenants_of(unit node_unit) returns text[] language sql immutable return
  case when unit.tenants_epoch = unit.epoch then unit.tenants else '{default}'::text[] end;

-- Whether one of these tenants, or all by '*', is this one.
create function tenure_serves(tenants text[], tenant text) returns boolean language sql immutable return
  tenants && array[tenant, '*'];

-- What a caller within a tenant sees; one within '*' sees everything.
create function tenure_in_scope(tenant text, scope text) returns boolean language sql immutable return
  scope = '*' or tenant = scope;
create function tenure_in_scope(tenants text[], scope text) returns boolean language sql immutable return
  scope = '*' or coalesce(tenants, '{default}'::text[]) && array[scope, '*'];

create or replace view node_unit_now as
  select address, name, node_unit.version, instance_id, node_unit.boot_id,
         greatest(0, least(epoch, 9007199254740991)) as epoch, online, presence_expires_at, left_at, claim_policy, labels, trusted_package_regexp, custom_command, draining, tags,
         joined_at, renewed_at, left_silently,
         case when not online then coalesce(left_at, '-infinity')
              when instance.instance_id is null then presence_expires_at
              else least(presence_expires_at,
                         greatest(instance.expires_at, coalesce(renewed_at + interval '15 s', presence_expires_at))
                         + interval '10 s') end as lost_at,
         case when tenants_epoch = epoch then tenants else '{default}'::text[] end as tenants
    from node_unit left join instance using (instance_id);

-- A refusal by a node that served other tenants then is no refusal now. As before for a node that serves `default`.
create or replace function tenure_node_traits(unit node_unit) returns text language sql stable return
  case when tenure_tenants_of(unit) = '{default}'::text[]
       then md5(jsonb_build_array(unit.labels, unit.trusted_package_regexp, unit.custom_command)::text)
       else md5(jsonb_build_array(unit.labels, unit.trusted_package_regexp, unit.custom_command,
                                  tenure_tenants_of(unit))::text) end;

-- Names are unique within a tenant. Releases before this one rely on the column being unique, so the name of a deployment
-- of another tenant than `default` is stored with its tenant and a space before it. Neither can hold a space.
alter table deployment add column tenant text not null default 'default';
create index deployment_tenant on deployment (tenant, name);

create function tenure_stored_name(tenant text, name text) returns text language sql immutable return
  case when tenant = 'default' then name else tenant || ' ' || name end;

create function tenure_deployment_name(row_of deployment) returns text language sql immutable return
  case when row_of.tenant <> 'default' and starts_with(row_of.name, row_of.tenant || ' ')
       then substr(row_of.name, length(row_of.tenant) + 2) else row_of.name end;

-- By a trigger, so that a writer with SQL and an instance of 0.1.0 keep to it as well. It runs after `deployment_written`,
-- which gives a row without a name its id: triggers run in the order of their names.
create function tenure_deployment_named() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and new.tenant <> old.tenant and new.name = old.name then
    new.name := tenure_deployment_name(old);
  end if;
  if new.tenant <> 'default' and not starts_with(new.name, new.tenant || ' ') then
    new.name := tenure_stored_name(new.tenant, new.name);
  end if;
  return new;
end $$;
create trigger deployment_written_name before insert or update on deployment
  for each row execute function tenure_deployment_named();

create or replace function tenure_deployment_spec(row_of deployment) returns jsonb language sql stable return
  to_jsonb(row_of) - array['id', 'name', 'address', 'enabled', 'created_at', 'updated_at', 'generation',
                           'revision', 'moving_to', 'move_state', 'changed_xid', 'tenant'];
