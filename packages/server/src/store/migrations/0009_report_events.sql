-- The newest events about failures, by deployment and by node: a failure that goes on is not written again, and both have
-- a budget (deployments/report-event-store.ts).
create index event_report_subject on event (subject, id)
  where event in ('deployment.crashed', 'deployment.failed', 'deployment.refused', 'daemon.missed');
create index event_report_address on event ((details ->> 'address'), id)
  where event in ('deployment.crashed', 'deployment.failed', 'deployment.refused', 'daemon.missed');
