-- renewed_at: when the node-unit was heard last. left_silently: it left without a close, because it stopped answering.
alter table node_unit
  add column renewed_at    timestamptz,
  add column left_silently boolean not null default false;
-- The last change of the counts while the brake is active.
alter table membership_brake add column changed_at timestamptz;
-- When this instance last asked all its node-units whether they are there. Null: an instance that does not do that.
alter table instance add column confirmed_at timestamptz;

-- By a trigger, so that a server of an older release, which does not know the columns, keeps them true as well.
create function tenure_node_unit_written() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    new.renewed_at := tenure_now();
  elsif new.presence_expires_at > old.presence_expires_at then
    new.renewed_at := tenure_now();
  end if;
  if new.online then
    new.left_silently := false;
  end if;
  return new;
end $$;
create trigger node_unit_written before insert or update on node_unit
  for each row execute function tenure_node_unit_written();

-- After a silent loss others may be gone as well: every instance asks its node-units at once.
create function tenure_tell_confirm() returns trigger language plpgsql as $$
begin
  notify tenure_confirm;
  return null;
end $$;
create trigger node_unit_lost_silently after update of online on node_unit
  for each row when (old.online and not new.online and new.left_silently)
  execute function tenure_tell_confirm();

-- Milliseconds until a moment, at most a day either way: more fits no timer, and an infinite time no number.
create function tenure_ms_until(moment timestamptz) returns bigint language sql volatile return
  (extract(epoch from least(greatest(moment, tenure_now() - interval '1 day'), tenure_now() + interval '1 day')
                      - tenure_now()) * 1000)::bigint;

-- The moment a node-unit was lost, or will be if nothing is heard of it again: when it left, or when its presence ends.
-- Sooner when its instance ran out too: then at the later of that and 15 s after it was heard, plus 10 s to reconnect.
-- An instance that stopped in good order has no row, and one that is live ends in the future: both change nothing.
create function tenure_lost_at(unit node_unit) returns timestamptz language sql stable return
  case when unit.online
       then least(unit.presence_expires_at,
                  (select greatest(instance.expires_at,
                                   coalesce(unit.renewed_at + interval '15 s', unit.presence_expires_at)) + interval '10 s'
                     from instance where instance.instance_id = unit.instance_id))
       else coalesce(unit.left_at, '-infinity') end;

-- The same for many rows at once: a join costs a tenth of a function call for each.
-- An epoch beyond 2^53 or below 0, which only SQL can write, reads as the nearest number in between: no connection has it.
create view node_unit_now as
  select address, name, node_unit.version, instance_id, node_unit.boot_id,
         greatest(0, least(epoch, 9007199254740991)) as epoch, online, presence_expires_at, left_at, claim_policy, labels, trusted_package_regexp, custom_command, draining, tags,
         joined_at, renewed_at, left_silently,
         case when not online then coalesce(left_at, '-infinity')
              when instance.instance_id is null then presence_expires_at
              else least(presence_expires_at,
                         greatest(instance.expires_at, coalesce(renewed_at + interval '15 s', presence_expires_at))
                         + interval '10 s') end as lost_at
    from node_unit left join instance using (instance_id);

-- The mass-loss brake counts node-units whose loss matters: those that were present for an hour, or own or owned a
-- deployment. Short-lived nodes that come and go by the dozen must not stop the releases of the others.
create function tenure_brake_counts(unit_address text, presence interval) returns boolean language sql stable return
  presence >= interval '1 hour'
  or exists (select from deployment where deployment.address = unit_address and deployment.type = 'deployment')
  or exists (select from deployment_status join deployment on deployment.id = deployment_status.deployment_id
              where deployment_status.address = unit_address and deployment.type = 'deployment');

-- Of the node-units that count: how many were lost since a moment, and if any was, how many are present. One that is
-- still online and was not heard after `silence`, the last silent loss, counts as lost: every instance pinged its
-- node-units then, and up to 5 s lie between the first and the last of several that fall silent together.
create function tenure_losses(since timestamptz, silence timestamptz, out lost bigint, out present bigint)
language plpgsql as $$
declare
  v_now timestamptz := tenure_now();
begin
  select count(*) into lost
    from (select address, joined_at, lost_at from node_unit_now where online and lost_at between since and v_now
          union all
          select address, joined_at, left_at from node_unit where not online and left_at between since and v_now
          union all
          select address, joined_at, v_now from node_unit_now
           where online and lost_at > v_now and coalesce(renewed_at, '-infinity') <= silence) as unit
   where tenure_brake_counts(address, lost_at - joined_at);
  present := 0;
  if lost > 0 then
    select count(*) into present
      from node_unit_now
     where online and lost_at > v_now and (coalesce(renewed_at, '-infinity') <= silence) is not true
       and tenure_brake_counts(address, v_now - joined_at);
  end if;
end $$;

create function tenure_is_mass_loss(lost bigint, present bigint) returns boolean language sql immutable return
  lost >= 3 and lost > present;

-- The regular look at the members reads what is online, and of the rest what left a moment ago: these two keep it from
-- reading every node-unit that ever was. Neither has a column that a renewal of presence writes.
create index node_unit_online on node_unit (address collate "C") where online;
create index node_unit_left_at on node_unit (left_at) where not online;
-- Lists of node-units come in pages, in the order in which JavaScript compares addresses.
create index node_unit_in_order on node_unit (address collate "C");
-- A node-unit is forgotten only when no deployment is on its way to it.
create index deployment_moving_to on deployment (moving_to) where moving_to <> '';
create index deployment_status_address on deployment_status (address);
