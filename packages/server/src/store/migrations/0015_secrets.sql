-- Values that deployments refer to by name. `sealed` is the nonce, the ciphertext and the tag of AES-256-GCM, which covers
-- tenant, name and version too: a value copied to another row does not decrypt (secrets/sealing.ts).
create table secret (
  tenant     text        not null check (tenant ~ '^[A-Za-z0-9._:/@-]{1,128}$'),
  name       text        not null check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
  version    bigint      not null check (version between 1 and 999999999999999),
  key_id     text        not null,
  sealed     bytea       not null,
  created_at timestamptz not null default tenure_now(),
  -- When the value was set, not when it was encrypted again.
  updated_at timestamptz not null default tenure_now(),
  primary key (tenant, name)
);

-- One sequence for all secrets: one that is removed and set again never has a version that it had before.
create sequence secret_version;

-- The versions of the secrets that `env` refers to; 0 of one that never existed. Node-units start the child again when they
-- change. A secret that was removed keeps its last version here, so that its children go on.
alter table deployment add column secret_versions jsonb not null default '{}';
create index deployment_secret on deployment using gin (secret_versions) where secret_versions <> '{}';

-- 0 for what is no version: SQL may have written anything.
create function tenure_version(versions jsonb, name text) returns bigint language sql immutable return
  case when versions ->> name ~ '^[0-9]{1,15}$' then (versions ->> name)::bigint else 0 end;

create function tenure_secret_versions(of_tenant text, env jsonb, former jsonb) returns jsonb language sql stable return
  (select coalesce(jsonb_object_agg(used.name, coalesce(secret.version, tenure_version(former, used.name))), '{}')
     from (select distinct value ->> 'secret' as name
             from jsonb_each(case jsonb_typeof(env) when 'object' then env else '{}' end)
            where jsonb_typeof(value) = 'object' and jsonb_typeof(value -> 'secret') = 'string') as used
     left join secret on secret.tenant = of_tenant and secret.name = used.name);

-- By a trigger, so that a writer with SQL and an older instance keep to it as well. A new value of a secret is brought here
-- by the statement that sets it, and by a sweep for rows written at the same moment (deployments/store/secret-store.ts).
create function tenure_deployment_secrets() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    new.secret_versions := tenure_secret_versions(new.tenant, new.env, '{}');
  elsif new.tenant is distinct from old.tenant then
    new.secret_versions := tenure_secret_versions(new.tenant, new.env, '{}');
  elsif new.env is distinct from old.env then
    new.secret_versions := tenure_secret_versions(new.tenant, new.env, old.secret_versions);
  end if;
  return new;
end $$;
create trigger deployment_secrets before insert or update on deployment
  for each row execute function tenure_deployment_secrets();

-- As before, without the versions: a new value is no new revision.
create or replace function tenure_deployment_spec(row_of deployment) returns jsonb language sql stable return
  to_jsonb(row_of) - array['id', 'name', 'address', 'enabled', 'created_at', 'updated_at', 'generation',
                           'revision', 'moving_to', 'move_state', 'changed_xid', 'tenant', 'secret_versions'];

-- Whether the node-unit may run it as far as secrets go: an agent of 0.1.0 does not know them.
create function tenure_takes_secrets(unit node_unit) returns boolean language sql stable return
  coalesce(unit.tags -> 'node_unit_secrets' = 'true', false);

-- As before, but a node-unit that takes secrets has other traits: one that refused a deployment without them gets it again.
create or replace function tenure_node_traits(unit node_unit) returns text language sql stable return
  md5(concat_ws(' ',
    case when tenure_tenants_of(unit) = '{default}'
         then jsonb_build_array(unit.labels, unit.trusted_package_regexp, unit.custom_command)::text
         else jsonb_build_array(unit.labels, unit.trusted_package_regexp, unit.custom_command,
                                tenure_tenants_of(unit))::text end,
    case when tenure_takes_secrets(unit) then 'secrets' end));
