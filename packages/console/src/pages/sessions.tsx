import type { SessionView } from "@tenure/protocol";
import { useMemo } from "preact/hooks";
import { call } from "../api.ts";
import { Badge } from "../parts/badge.tsx";
import { Choices, chosen, Filters, sought } from "../parts/filter.tsx";
import { Id } from "../parts/id.tsx";
import { type Column, List } from "../parts/list.tsx";
import { Page } from "../parts/page.tsx";
import { Empty, Failure, Loading, Stale } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Time } from "../parts/time.tsx";
import { createResource } from "../resource.ts";
import { TurnLink } from "./links.tsx";

/** Only the newest sessions are shown: there are many, and most are short. */
const SESSIONS_MAX = 2_000;

const sessions = createResource({ read: readSessions, everyMs: 5_000, topics: ["sessions"] });

async function readSessions(): Promise<SessionView[]> {
  const found: SessionView[] = [];
  let cursor: string | undefined;
  do {
    const page = await call("listSessions", { query: { limit: 500, cursor } });
    found.push(...page.items);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined && found.length < SESSIONS_MAX);
  return found;
}

/** Sessions and their current turns. */
export function SessionsPage() {
  const { value, error } = sessions.use();
  const state = chosen("state");
  const query = sought();
  const shown = useMemo(
    () =>
      (value ?? []).filter(
        (session) =>
          (state === "" || session.online === (state === "online")) &&
          [session.session_id, session.current_turn_id, session.tenant].some((text) =>
            text?.toLowerCase().includes(query),
          ),
      ),
    [value, state, query],
  );
  return (
    <Page
      title="Turns and sessions"
      sub="Clients that submit jobs. The jobs of one turn go to one node."
    >
      <Stale error={value && error} />
      <Filters placeholder="Session, turn, tenant">
        <Choices
          name="state"
          label="State"
          of={[
            { value: "", label: "All", ...(value && { count: value.length }) },
            {
              value: "online",
              label: "Connected",
              ...(value && { count: value.filter(({ online }) => online).length }),
            },
            {
              value: "away",
              label: "Away",
              ...(value && { count: value.filter(({ online }) => !online).length }),
            },
          ]}
        />
      </Filters>
      {value ? (
        <List
          label="Sessions"
          columns={COLUMNS}
          rows={shown}
          keyOf={({ session_id }) => session_id}
          empty={
            value.length === 0 ? (
              <Empty title="No session is known">
                <p>
                  An application opens one with the SDK; it is removed some minutes after it
                  disconnects.
                </p>
              </Empty>
            ) : (
              <Empty title="No session fits this filter" />
            )
          }
        />
      ) : error ? (
        <Failure error={error} retry={sessions.refresh} />
      ) : (
        <Loading what="sessions" />
      )}
    </Page>
  );
}

const COLUMNS: Column<SessionView>[] = [
  {
    title: "State",
    width: "116px",
    narrow: "side",
    sort: ({ online }) => Number(!online),
    cell: ({ online }) =>
      online ? <Badge tone="good" word="connected" /> : <Badge tone="idle" word="away" />,
  },
  {
    title: "Session",
    width: "minmax(0, 1.2fr)",
    narrow: "title",
    sort: ({ session_id }) => session_id,
    cell: ({ session_id }) => <Id of={session_id} />,
  },
  {
    title: "Current turn",
    width: "minmax(0, 1fr)",
    narrow: "line",
    sort: ({ current_turn_id }) => current_turn_id ?? "",
    cell: ({ current_turn_id }) =>
      current_turn_id ? <TurnLink id={current_turn_id} /> : <span class="quiet">no turn</span>,
  },
  {
    title: "Jobs",
    width: "90px",
    cell: ({ session_id }) => <a href={`/jobs?session=${session_id}`}>its jobs</a>,
  },
  {
    title: "Instance",
    width: "minmax(0, 1fr)",
    cell: ({ instance_id }) =>
      instance_id ? <Id of={instance_id} /> : <span class="quiet none">–</span>,
  },
  { title: "Tenant", width: "minmax(0, 0.7fr)", cell: ({ tenant }) => <Text>{tenant}</Text> },
  {
    title: "Seen",
    width: "90px",
    isNumber: true,
    narrow: "line",
    sort: ({ last_seen_at }) => -Date.parse(last_seen_at),
    cell: ({ last_seen_at }) => <Time at={last_seen_at} />,
  },
];
