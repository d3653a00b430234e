-- Durable jobs. The row decides that a job exists, which attempt is current and how the job ended; the hot store decides
-- where the job is now. Where the two differ, the row is right.
create table job (
  job_id           uuid        primary key default gen_random_uuid(),
  tenant           text        not null default 'default',
  request_id       text        not null default gen_random_uuid()::text,
  pool             text        not null,
  -- The optional fields of `POST /jobs`, by their names there, and what the server adds (jobs/rows/row-codec.ts). A row that
  -- cannot be read ends as failed.
  spec             jsonb       not null default '{}',
  -- JSON, which the server never parses; so is `result`.
  payload          text        not null,
  -- scheduled: waits here, until `run_at` or until the pool has room. open: the hot store has it.
  state            text        not null default 'scheduled' check (state in ('scheduled', 'open', 'ended')),
  run_at           timestamptz not null default tenure_now(),
  -- `run_at` has passed, and the job waits for room in its pool.
  is_due           boolean     not null default false,
  priority         int         not null default 0,
  -- The number of the current attempt, written before the hot store uses it.
  attempt_id       int         not null default 1 check (attempt_id >= 1),
  -- Its request is known to be its own. A row that its submit left undecided, and whose request another job has, goes.
  is_decided       boolean     not null default true,
  counted_attempts int         not null default 0,
  -- Of what the caller asked for: the same request id with another hash is REQUEST_ID_REUSED.
  body_hash        text        not null default '',
  outcome          text,
  result           text,
  error            jsonb,
  created_at       timestamptz not null default tenure_now(),
  ended_at         timestamptz,
  unique (tenant, request_id)
);
create index job_open on job (job_id) where state = 'open';
create index job_timed on job (run_at) where state = 'scheduled' and not is_due;
create index job_due on job (pool, tenant, priority desc, run_at) where state = 'scheduled' and is_due;
create index job_ended on job (ended_at) where state = 'ended';

-- Wakes the instances for jobs that wait in the table. A job of the API is inserted open.
create function tenure_job_scheduled() returns trigger language plpgsql as $$
begin
  if exists (select from made where state = 'scheduled') then
    notify tenure_job;
  end if;
  return null;
end $$;
create trigger job_scheduled after insert on job referencing new table as made
  for each statement execute function tenure_job_scheduled();

-- Which database roles may enqueue jobs, for which tenant and in which pools ('*': all). Only the owner of the schema
-- writes it.
create table job_enqueuer (
  role_name text primary key,
  tenant    text not null default 'default' check (tenant ~ '^[A-Za-z0-9._:/@-]{1,128}$'),
  pools     text[] not null
);

-- The limits of the settings, written by each instance when it starts.
create table job_limit (
  only_one      boolean primary key default true check (only_one),
  payload_bytes bigint not null
);
insert into job_limit (payload_bytes) values (262144);

-- An integer option within its limits, or null. The reason names the option.
create function tenure_enqueue_int(options jsonb, name text, lowest bigint, highest bigint) returns bigint language plpgsql as $$
declare
  v_value jsonb := options -> name;
begin
  if v_value is null or v_value = 'null' then return null; end if;
  if jsonb_typeof(v_value) <> 'number' or v_value::numeric <> trunc(v_value::numeric) or v_value::numeric not between lowest and highest then
    raise exception 'INVALID_REQUEST: %: expected an integer from % to %', name, lowest, highest using errcode = '22023';
  end if;
  return v_value::numeric;
end $$;

create function tenure_enqueue_word(options jsonb, name text) returns text language plpgsql as $$
declare
  v_value jsonb := options -> name;
begin
  if v_value is null or v_value = 'null' then return null; end if;
  if jsonb_typeof(v_value) <> 'string' or (options ->> name) !~ '^[A-Za-z0-9._:/@-]{1,128}$' then
    raise exception 'INVALID_REQUEST: %: expected 1 to 128 of A-Z a-z 0-9 . _ : / @ -', name using errcode = '22023';
  end if;
  return options ->> name;
end $$;

-- Enqueues a job in the caller's transaction. The options are the fields of `POST /jobs`. The text of an error begins with a
-- code of docs/errors.md. By `security definer` a role needs no right on the tables; `session_user` stays the caller's. The
-- search path names the schema of this migration, so that a caller's objects cannot stand in for ours.
do $do$
begin
  execute format($create$
create function tenure_enqueue(pool text, payload jsonb, options jsonb default '{}') returns uuid
language plpgsql security definer set search_path = pg_catalog, %I, pg_temp as $$
declare
  v_tenant     text;
  v_pools      text[];
  v_unknown    text;
  v_text       text := tenure_enqueue.payload::text;
  v_bytes_max  bigint;
  v_request_id text;
  v_run_at     timestamptz := tenure_now();
  v_hash       text;
  v_job_id     uuid;
  v_had_hash   text;
  o            jsonb := coalesce(tenure_enqueue.options, '{}');
begin
  select tenant, pools into v_tenant, v_pools from job_enqueuer where role_name = session_user;
  if v_tenant is null or tenure_enqueue.pool is null or not (v_pools && array['*', tenure_enqueue.pool]) then
    raise exception 'FORBIDDEN: role %% may not enqueue jobs in pool %%', session_user, coalesce(tenure_enqueue.pool, 'null')
      using errcode = '42501', hint = 'the owner of the schema adds roles to job_enqueuer';
  end if;
  if tenure_enqueue.pool !~ '^[A-Za-z0-9._:/@-]{1,128}$' then
    raise exception 'INVALID_REQUEST: pool: expected 1 to 128 of A-Z a-z 0-9 . _ : / @ -' using errcode = '22023';
  end if;
  if v_text is null then
    raise exception 'INVALID_REQUEST: payload: required' using errcode = '22023';
  end if;
  select payload_bytes into v_bytes_max from job_limit;
  if octet_length(v_text) > v_bytes_max then
    raise exception 'PAYLOAD_TOO_LARGE: larger than %% bytes', v_bytes_max using errcode = '54000';
  end if;
  if jsonb_typeof(o) <> 'object' then
    raise exception 'INVALID_REQUEST: options: expected an object' using errcode = '22023';
  end if;
  select string_agg(name, ', ') into v_unknown from jsonb_object_keys(o) as name
   where name not in ('request_id', 'service', 'priority', 'timeout_ms', 'pending_ms', 'trace_id', 'run_at', 'delay_ms', 'retry');
  if v_unknown is not null then
    raise exception 'INVALID_REQUEST: unknown options: %%', v_unknown using errcode = '22023';
  end if;
  perform tenure_enqueue_word(o, 'service'), tenure_enqueue_word(o, 'trace_id'),
          tenure_enqueue_int(o, 'timeout_ms', 1, 2147483647), tenure_enqueue_int(o, 'pending_ms', 1, 3600000);
  if o ? 'run_at' and o ? 'delay_ms' then
    raise exception 'INVALID_REQUEST: run_at and delay_ms: expected one of them' using errcode = '22023';
  end if;
  if o ? 'run_at' then
    begin
      v_run_at := (o ->> 'run_at')::timestamptz;
    exception when others then
      raise exception 'INVALID_REQUEST: run_at: expected a time' using errcode = '22023';
    end;
  elsif o ? 'delay_ms' then
    v_run_at := v_run_at + make_interval(secs => tenure_enqueue_int(o, 'delay_ms', 0, 31622400000) / 1000.0);
  end if;
  if v_run_at is null or v_run_at > tenure_now() + interval '366 days' or v_run_at < tenure_now() - interval '1 minute' then
    raise exception 'INVALID_REQUEST: run_at: expected a time from now to 366 days ahead' using errcode = '22023';
  end if;
  v_request_id := coalesce(tenure_enqueue_word(o, 'request_id'), gen_random_uuid()::text);
  v_hash := 'sql:' || md5(jsonb_build_array(tenure_enqueue.pool, tenure_enqueue.payload, o - 'trace_id')::text);
  insert into job (tenant, request_id, pool, spec, payload, run_at, priority, body_hash)
  values (v_tenant, v_request_id, tenure_enqueue.pool,
          jsonb_strip_nulls(o - array['request_id', 'priority', 'run_at', 'delay_ms']), v_text, v_run_at,
          coalesce(tenure_enqueue_int(o, 'priority', 0, 9), 0), v_hash)
  on conflict (tenant, request_id) do nothing
  returning job_id into v_job_id;
  if v_job_id is null then
    select job_id, body_hash into v_job_id, v_had_hash from job where tenant = v_tenant and request_id = v_request_id;
    if v_had_hash is distinct from v_hash then
      raise exception 'REQUEST_ID_REUSED: request id %% was already used for another request', v_request_id using errcode = '23505';
    end if;
  end if;
  return v_job_id;
end $$
$create$, current_schema());
end $do$;
