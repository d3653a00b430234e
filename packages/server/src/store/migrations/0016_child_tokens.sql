-- What all instances sign the tokens of children with. A token names a deployment and a generation; the row decides at each
-- call whether the term is current, so there is no row per child (access/child-tokens.ts).
create table child_token_key (
  only_one boolean primary key default true check (only_one),
  key      text    not null
);
insert into child_token_key (key) values (gen_random_uuid()::text || gen_random_uuid()::text);

-- What the children of a deployment may use with their token: { "pools": [], "signers": [] }. Part of the specification.
alter table deployment add column grants jsonb not null default '{}';
