import type { Db } from "../../store/db.ts";
import type { NewEvent } from "../../store/event-store.ts";
import { json, sql } from "../../store/sql.ts";

export interface ReportEvent extends NewEvent {
  subject: string;
  details: { address: string; generation: number } & Record<string, unknown>;
}

/** Events of one deployment, and of one node, in an hour. What is above is in `deployment_status` and its `restarts`. */
export const HOURLY_MAX = { deployment: 10, node: 60 } as const;

/**
 * Writes the event of a failure unless it is the same failure going on (`continues`: the child was not stable in between,
 * and this node wrote the same in this term), or the budget of its deployment or its node is used up. One crash loop
 * would write 1,440 rows of up to 4 kB a day. The names stand in the statement as in the indexes it reads.
 */
export async function appendReportEvent(
  db: Db,
  { event, message, code, subject, details }: ReportEvent,
  continues: boolean,
): Promise<boolean> {
  const { address, generation } = details;
  const { rowCount } = await db.query(sql`
    with of_deployment as materialized (
      select event, at, details from event
       where subject = ${subject}
         and event in ('deployment.crashed', 'deployment.failed', 'deployment.refused', 'daemon.missed')
       order by id desc limit ${HOURLY_MAX.deployment}),
    of_node as materialized (
      select at from event
       where details ->> 'address' = ${address}
         and event in ('deployment.crashed', 'deployment.failed', 'deployment.refused', 'daemon.missed')
       order by id desc limit ${HOURLY_MAX.node}),
    counted as (
      select (select count(*) from of_deployment where at > tenure_now() - interval '1 hour') as deployment,
             (select count(*) from of_node where at > tenure_now() - interval '1 hour') as node,
             exists (select from of_deployment
                      where event = ${event} and details ->> 'address' = ${address}
                        and details ->> 'generation' = ${String(generation)}) as known)
    insert into event (event, message, code, subject, details)
    select ${event}, ${message}, ${code ?? null}, ${subject}, ${json(details)}
      from counted
     where counted.deployment < ${HOURLY_MAX.deployment} and counted.node < ${HOURLY_MAX.node}
       and not (known and ${continues}::boolean)`);
  return rowCount === 1;
}
