-- A signer belongs to one tenant. Rows that exist, and those that a 0.1.0 server inserts, belong to `default`.
alter table signer_lease add column tenant text not null default 'default';
-- The list of one tenant's signers, in order. No statement but a move changes these columns, so updates stay heap-only.
create index signer_lease_tenant on signer_lease (tenant, signer);

-- `nonce_commit` of 0008 with the caller's tenant, judged under the lock of the lease's row: a move and a write never
-- overlap. The parameters have defaults, so the call of a 0.1.0 server resolves to this function; 0003 and 0008 explain the
-- rest.
--
--   p_tenant         the write is done for a signer of this tenant only; '*': of any. Null is a 0.1.0 server, which knows no
--                    tenants: it may write for `default` and open signers there.
--   p_opens_in       the tenant of a signer that does not exist yet; null: the caller may not open one
--
-- Two more answers: { outcome: 'absent' } and { outcome: 'foreign' } (another tenant's). Nothing was done. A 0.1.0 server gets
-- 'held' instead, which it answers as LEASE_HELD.
drop function nonce_commit(text, text, bigint, int, int, int, text, int, bigint, jsonb, jsonb, bigint, bigint, bigint, pg_lsn);
create function nonce_commit(
  p_signer text, p_owner_node text, p_fencing_token bigint, p_keep_ms int, p_wait_ms int,
  p_hold_ttl_ms int, p_hold_expiry text, p_ahead_max int,
  p_next_nonce bigint, p_marks jsonb, p_asks jsonb,
  p_raise_max bigint default null,
  p_confirmed_at bigint default null, p_run bigint default null, p_wal pg_lsn default null,
  p_tenant text default null, p_opens_in text default null
) returns jsonb language plpgsql
  -- Every row is found by its whole key, one at a time. Plans are kept from when the tables were small, and a list
  -- of keys or a join would then be read as "all rows of this signer": 14 ms measured at 4,000 rows, and rising.
  set enable_seqscan = off
  set jit = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  v_lease       signer_lease;
  v_token       bigint;
  v_acquired    text;
  v_now         timestamptz;
  v_locked      timestamptz;
  v_looked      boolean := false;
  v_has_expired boolean;
  v_expired     int := 0;
  v_next        bigint;
  v_first       bigint;
  v_requests    text[];
  v_ns          int[];
  v_holds       uuid[];
  v_released    bigint[];
  v_gap         bigint;
  v_room        bigint;
  v_wanted      int;
  v_reused      int := 0;
  v_inserted    int := 0;
  v_mark        record;
  v_marked      jsonb;
  v_nonces      bigint[];
  v_known       jsonb;
  v_is_known    boolean;
begin
  -- The history, compared where a number is given out: behind a pooler no connection of ours notices a promotion.
  select m.run_started_at = pg_postmaster_start_time()
         and m.table_oid = m.tableoid
         and coalesce(m.refused_at <= m.confirmed_at, true)
         and (p_run is null or (p_run = tenure_us(m.run_started_at)
                                and p_confirmed_at = tenure_us(m.confirmed_at)
                                and p_wal <= pg_current_wal_insert_lsn()))
    into v_is_known
    from tenure_meta as m;
  -- A raise alone is always done: it is what an operator does before confirming, and gives nothing out.
  if v_is_known is not true and (p_next_nonce is null or p_marks is not null or p_asks is not null) then
    if p_run is not null then return jsonb_build_object('outcome', 'unchecked'); end if;
    if nonce_check_history(null) ->> 'state' = 'refused' then
      raise exception 'timeline' using errcode = 'cannot_connect_now';
    end if;
  end if;

  -- The lock. Nobody else writes about this signer until we commit.
  if p_wait_ms is null then
    select * into v_lease from signer_lease where signer = p_signer for update skip locked;
  else
    perform set_config('lock_timeout', p_wait_ms::text, true);
    select * into v_lease from signer_lease where signer = p_signer for update;
  end if;
  if not found then
    -- Not found is absent, or locked by another commit.
    if p_tenant is not null and p_opens_in is null
       and not exists (select from signer_lease where signer = p_signer) then
      return jsonb_build_object('outcome', 'absent');
    end if;
    insert into signer_lease (signer, owner_node, fencing_token, expires_at, acquired_at, updated_at, tenant)
    values (p_signer, '', 0, '-infinity', tenure_now(), tenure_now(), coalesce(p_opens_in, 'default'))
      on conflict (signer) do nothing;
    if p_wait_ms is null then
      select * into v_lease from signer_lease where signer = p_signer for update skip locked;
    else
      select * into v_lease from signer_lease where signer = p_signer for update;
    end if;
    if not found then return jsonb_build_object('outcome', 'busy'); end if;
  end if;

  -- The tenant, before anything is written: another tenant's call must not even end a term.
  if v_lease.tenant <> coalesce(p_tenant, 'default') and p_tenant is distinct from '*' then
    return case when p_tenant is null then jsonb_build_object('outcome', 'held', 'owner_node', 'another tenant')
                else jsonb_build_object('outcome', 'foreign') end;
  end if;

  -- The clock, read after the lock: whoever waited judges the lease by the time it goes on.
  v_now := tenure_now();

  -- The fence: equality, and the lease still lives.
  if p_fencing_token is not null then
    if v_lease.owner_node <> p_owner_node or v_lease.fencing_token <> p_fencing_token or v_lease.expires_at <= v_now then
      return jsonb_build_object('outcome', 'fenced', 'fencing_token', v_lease.fencing_token);
    end if;
    v_token := v_lease.fencing_token;
  elsif v_lease.owner_node = p_owner_node and v_lease.expires_at > v_now then
    v_token := v_lease.fencing_token;
    v_acquired := 'extended';
  elsif v_lease.expires_at <= v_now then
    v_token := v_lease.fencing_token + 1;
    v_acquired := case when v_lease.fencing_token = 0 then 'new'
                       when v_lease.expires_at = '-infinity' then 'taken' else 'taken_over' end;
  else
    return jsonb_build_object('outcome', 'held', 'owner_node', v_lease.owner_node, 'expires_at', v_lease.expires_at);
  end if;
  update signer_lease
     set owner_node    = p_owner_node,
         fencing_token = v_token,
         expires_at    = case when p_keep_ms > 0 then v_now + p_keep_ms * interval '1 ms' else '-infinity' end,
         acquired_at   = case when v_token = fencing_token then acquired_at else v_now end,
         updated_at    = v_now
   where signer = p_signer;

  -- What there is; and once more after holds that ran out and marks have changed it.
  loop
    select (select next_local_nonce from signer_nonce_state where signer = p_signer),
           array(select nonce from signer_nonce_allocation
                  where signer = p_signer and status = 'RELEASED' order by nonce limit coalesce(jsonb_array_length(p_asks), 0)),
           (select nonce from signer_nonce_allocation
             where signer = p_signer and status = 'QUARANTINED' order by nonce limit 1),
           exists (select from signer_nonce_allocation
                    where signer = p_signer and status = 'HELD' and locked_until <= v_now)
      into v_first, v_released, v_gap, v_has_expired;
    exit when v_looked or (p_marks is null and not v_has_expired);
    v_looked := true;

    -- Holds that ran out, the oldest first, some at a time: a crowd of them must not make one commit long.
    update signer_nonce_allocation
       set status = nonce_next(status, p_hold_expiry), reason = 'the hold ran out', fencing_token = v_token, updated_at = v_now
     where ctid = any (array(select ctid from signer_nonce_allocation
                              where signer = p_signer and status = 'HELD' and locked_until <= v_now
                              order by locked_until limit 1000));
    get diagnostics v_expired = row_count;
    if p_marks is not null then
      v_marked := '[]';
      for v_mark in
        select * from jsonb_to_recordset(p_marks) as (event text, nonce bigint, hold_id uuid, tx_hash text, reason text)
      loop
        update signer_nonce_allocation
           set status        = coalesce(nonce_next(status, v_mark.event), status),
               tx_hash       = coalesce(v_mark.tx_hash, tx_hash),
               reason        = v_mark.reason,
               fencing_token = v_token,
               updated_at    = v_now
         where signer = p_signer
           and nonce = v_mark.nonce
           and (hold_id = v_mark.hold_id or v_mark.hold_id is null)
           -- A number that an operator or the chain settled may still learn its hash from its own hold.
           and (nonce_next(status, v_mark.event) is not null
                or (status = 'CONSUMED' and v_mark.event = 'use' and tx_hash is null));
        v_marked := v_marked || jsonb_build_array(
          (select to_jsonb(a) from signer_nonce_allocation as a where a.signer = p_signer and a.nonce = v_mark.nonce));
      end loop;
    end if;
  end loop;
  v_next := coalesce(v_first, 0);

  -- A raise declares every number below it used: what is open there must neither come back nor count as a gap.
  if p_next_nonce >= v_next and (p_raise_max is null or p_next_nonce - v_next <= p_raise_max) then
    v_next := p_next_nonce;
    v_released := '{}';
    v_gap := null;
    for v_mark in
      select a.nonce from signer_nonce_allocation as a where a.signer = p_signer and a.status = 'HELD'
      union all
      select a.nonce from signer_nonce_allocation as a where a.signer = p_signer and a.status = 'RELEASED'
      union all
      select a.nonce from signer_nonce_allocation as a where a.signer = p_signer and a.status = 'QUARANTINED'
    loop
      update signer_nonce_allocation
         set status = nonce_next(status, 'raise'), reason = 'the cursor was raised above it', fencing_token = v_token, updated_at = v_now
       where signer = p_signer and nonce = v_mark.nonce;
    end loop;
  end if;

  if p_asks is not null then
    v_locked := v_now + p_hold_ttl_ms * interval '1 ms';
    -- A request that was answered before is not asked again, and one that is here twice is one request. Most want
    -- one number: taken apart by hand it costs a quarter of the query, 15 of 60 µs.
    if jsonb_array_length(p_asks) = 1 then
      v_requests := array[p_asks -> 0 ->> 'request_id'];
      v_ns := array[(p_asks -> 0 ->> 'n')::int];
      v_holds := array[(p_asks -> 0 ->> 'hold_id')::uuid];
      if exists (select from signer_nonce_request as known
                  where known.signer = p_signer and known.request_id = v_requests[1] and known.n = 0) then
        v_requests := null;
      end if;
    else
      select array_agg(request_id order by place), array_agg(n order by place), array_agg(hold_id order by place)
        into v_requests, v_ns, v_holds
        from (select distinct on (request_id, n) *
                from rows from (jsonb_to_recordset(p_asks) as (request_id text, n int, hold_id uuid)) with ordinality
                     as ask (request_id, n, hold_id, place)
               order by request_id, n, place) as ask
       where (select known.nonce from signer_nonce_request as known
               where known.signer = p_signer and known.request_id = ask.request_id and known.n = 0) is null;
    end if;
    v_wanted := coalesce(cardinality(v_requests), 0);
    if v_wanted > 0 then
      v_room := least(9007199254740991 - v_next,
                      greatest(0, coalesce(p_ahead_max - (v_next - 1 - v_gap), 9007199254740991)));
      -- All numbers of a request or none, in the order they were asked for.
      if v_wanted > cardinality(v_released) + v_room then
        v_wanted := cardinality(v_released) + v_room;
        while v_wanted > 0 and v_requests[v_wanted] = v_requests[v_wanted + 1] loop v_wanted := v_wanted - 1; end loop;
        v_requests := v_requests[1:v_wanted];
        v_ns := v_ns[1:v_wanted];
        v_holds := v_holds[1:v_wanted];
      end if;
    end if;
    if v_wanted > 0 then
      v_released := v_released[1:v_wanted];
      v_reused := cardinality(v_released);
      for k in 1 .. v_reused loop
        update signer_nonce_allocation
           set status = nonce_next(status, 'allocate'), hold_id = v_holds[k], fencing_token = v_token,
               locked_until = v_locked, tx_hash = null, reason = null, updated_at = v_now
         where signer = p_signer and nonce = v_released[k];
      end loop;
      v_nonces := v_released;
      for k in 0 .. v_wanted - v_reused - 1 loop v_nonces := v_nonces || (v_next + k); end loop;
      insert into signer_nonce_allocation
             (signer, nonce, status, hold_id, fencing_token, locked_until, created_at, updated_at)
      select p_signer, v_nonces[k], 'HELD', v_holds[k], v_token, v_locked, v_now, v_now
        from generate_series(v_reused + 1, v_wanted) as k;
      get diagnostics v_inserted = row_count;
      insert into signer_nonce_request (signer, request_id, n, nonce, hold_id, fencing_token, locked_until, created_at)
      select p_signer, v_requests[k], v_ns[k], v_nonces[k], v_holds[k], v_token, v_locked, v_now
        from generate_series(1, v_wanted) as k;
    end if;
    -- What was answered before, with what has become of that hold: when its number went on to another hold it had
    -- been released, when its row was archived it had been used.
    if v_wanted < jsonb_array_length(p_asks) then
      select jsonb_agg(jsonb_build_object(
               'request_id', r.request_id, 'n', r.n, 'nonce', r.nonce, 'hold_id', r.hold_id,
               'fencing_token', r.fencing_token, 'locked_until', r.locked_until,
               'status', coalesce((select case when a.hold_id = r.hold_id then a.status else 'RELEASED' end
                                     from signer_nonce_allocation as a
                                    where a.signer = p_signer and a.nonce = r.nonce), 'CONSUMED'))
               order by r.request_id, r.n)
        into v_known
        from (select distinct request_id from jsonb_to_recordset(p_asks) as (request_id text)) as ask
       cross join lateral (select * from signer_nonce_request as r
                            where r.signer = p_signer and r.request_id = ask.request_id offset 0) as r
       where r.request_id <> all (coalesce(v_requests, '{}'));
    end if;
  end if;

  -- The cursor moves by what was inserted, and by nothing else.
  if v_first is null then
    insert into signer_nonce_state values (p_signer, v_next + v_inserted, v_token, v_now, v_now);
  elsif v_next + v_inserted > v_first then
    update signer_nonce_state
       set next_local_nonce = v_next + v_inserted, fencing_token = v_token, updated_at = v_now
     where signer = p_signer;
  end if;
  return jsonb_build_object(
    'outcome', 'done', 'acquired', v_acquired, 'former', case when v_acquired = 'taken_over' then v_lease.owner_node end,
    'fencing_token', v_token, 'expired', v_expired, 'first_nonce', coalesce(v_first, 0), 'next_nonce', v_next + v_inserted,
    'marks', v_marked, 'known', v_known, 'locked_until', v_locked, 'wal', pg_current_wal_insert_lsn(),
    'request_ids', v_requests, 'ns', v_ns, 'nonces', v_nonces, 'hold_ids', v_holds);
end $$;
