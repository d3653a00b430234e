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
