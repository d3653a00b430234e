-- What a node says of itself that decides what it may run. A node that refused a revision is offered it again when this
-- has changed.
create function tenure_node_traits(unit node_unit) returns text language sql stable return
  md5(jsonb_build_array(unit.labels, unit.trusted_package_regexp, unit.custom_command)::text);

-- The revision that a node refused, and by which traits. Null: it did not refuse.
alter table deployment_status add column refused_revision int;
alter table deployment_status add column refused_traits text;

-- What the node goes by when it is out of contact. Null: it stops at its own limit, as agents of 0.1.0 do.
alter table deployment_status add column lost_after_ms int;

-- Pinned rows are looked for every few seconds.
create index deployment_pinned on deployment (id) where selector ? 'address';
