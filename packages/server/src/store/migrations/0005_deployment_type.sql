-- Daemons run on every node-unit and have no owner. Every row that was there before is a deployment: the
-- default says so, for old rows and for writers that do not know the column. No check on the values: a bad
-- one must be seen and skipped, it must not stop the rest.
alter table deployment add column type text not null default 'deployment';
