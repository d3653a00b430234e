import { useMemo } from "preact/hooks";
import { call } from "../api.ts";
import { nodes } from "../data.ts";
import { Badge } from "../parts/badge.tsx";
import { Id } from "../parts/id.tsx";
import { List } from "../parts/list.tsx";
import { Card, Facts, Page } from "../parts/page.tsx";
import { Empty, Failure, Loading, Stale } from "../parts/states.tsx";
import { createResource } from "../resource.ts";
import { useJobs } from "./job-feed.ts";
import { JOB_COLUMNS } from "./jobs.tsx";
import { NodeLink, SessionLink } from "./links.tsx";

const BACK = { href: "/sessions", label: "Turns and sessions" };

/** One turn: its node and its jobs. */
export function TurnPage({ id }: { id: string }) {
  nodes.use();
  const turn = useMemo(
    () => createResource({ read: () => call("readTurn", { params: { id } }), everyMs: 5_000 }),
    [id],
  );
  const { value, error } = turn.use();
  if (!value) {
    return (
      <Page title="Turn" back={BACK}>
        {error ? <Failure error={error} retry={turn.refresh} /> : <Loading what="the turn" />}
      </Page>
    );
  }
  const { session_id, affinity_node_id, ended } = value;
  return (
    <Page
      title={`Turn ${id.slice(-8)}`}
      heading={<span class="mono">{id.slice(-8)}</span>}
      back={BACK}
      sub={
        <>
          <Badge tone={ended ? "idle" : "good"} word={ended ? `ended, ${ended}` : "open"} />{" "}
          <Id of={id} whole />
        </>
      }
    >
      <Stale error={error} />
      <Card>
        <Facts
          of={[
            ["Session", <SessionLink key="s" id={session_id} />],
            [
              "Node",
              affinity_node_id ? (
                <NodeLink address={affinity_node_id} />
              ) : (
                <span class="quiet">chosen by its first job</span>
              ),
            ],
            ["Ended", ended ?? <span class="quiet">not yet</span>],
          ]}
        />
      </Card>
      <Card title="Its jobs" flush>
        <TurnJobs turnId={id} sessionId={session_id} />
      </Card>
    </Page>
  );
}

function TurnJobs({ turnId, sessionId }: { turnId: string; sessionId: string }) {
  const filter = useMemo(() => ({ session_id: sessionId }), [sessionId]);
  const { jobs, isRead, error, refresh } = useJobs(filter);
  const own = useMemo(() => jobs.filter(({ turn_id }) => turn_id === turnId), [jobs, turnId]);
  if (!isRead) return error ? <Failure error={error} retry={refresh} /> : <Loading what="jobs" />;
  return (
    <List
      label="Jobs of this turn"
      columns={JOB_COLUMNS}
      rows={own}
      keyOf={({ job_id }) => job_id}
      empty={<Empty title="No jobs" />}
    />
  );
}
