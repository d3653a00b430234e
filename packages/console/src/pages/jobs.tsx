import type { Job, JobOutcome, JobState } from "@tenure/protocol";
import { useMemo, useState } from "preact/hooks";
import { now } from "../clock.ts";
import { isAdmin, nodes } from "../data.ts";
import { jobCondition, jobDurationMs } from "../model/job.ts";
import { duration } from "../model/time.ts";
import { Badge } from "../parts/badge.tsx";
import { Applied, chosen, Filters, Select, sought } from "../parts/filter.tsx";
import { Icon } from "../parts/icons.tsx";
import { type Column, List } from "../parts/list.tsx";
import { Page } from "../parts/page.tsx";
import { Empty, Failure, Loading, Stale } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Time } from "../parts/time.tsx";
import { type JobFilter, useJobs } from "./job-feed.ts";
import { JobForm } from "./job-form.tsx";
import { JobLink, NodeLink } from "./links.tsx";

const STATES: { value: string; label: string; filter: JobFilter }[] = [
  { value: "", label: "All states", filter: {} },
  ...(["CREATED", "DISPATCHED", "ACCEPTED", "RUNNING"] as JobState[]).map((state) => ({
    value: state,
    label: jobCondition({ state }).word,
    filter: { state },
  })),
  ...(
    [
      "succeeded",
      "failed",
      "cancelled",
      "timed_out",
      "no_node",
      "attempts_exhausted",
    ] as JobOutcome[]
  ).map((outcome) => ({
    value: outcome,
    label: jobCondition({ state: "FINISHED", outcome }).word,
    filter: { outcome },
  })),
];

/** Recent jobs, newest first, updated live. */
export function JobsPage() {
  const fleet = nodes.use();
  const pools = useMemo(
    () => [...new Set([...fleet.rows.values()].flatMap((node) => node.pools))].sort(),
    [fleet.version],
  );
  const [isSubmitting, setSubmitting] = useState(false);
  const [state, pool, session] = [chosen("state"), chosen("pool"), chosen("session")];
  const filter = useMemo(
    () => ({
      ...STATES.find(({ value }) => value === state)?.filter,
      ...(pool && { pool }),
      ...(session && { session_id: session }),
    }),
    [state, pool, session],
  );
  const { jobs, error, isRead, older, refresh } = useJobs(filter);
  const query = sought();
  const shown = useMemo(() => jobs.filter((job) => matches(job, query)), [jobs, query]);
  return (
    <Page
      title="Jobs"
      sub="Newest first, updated live."
      actions={
        isAdmin() && (
          <button type="button" class="button button-primary" onClick={() => setSubmitting(true)}>
            <Icon name="plus" /> Submit a job
          </button>
        )
      }
    >
      <Stale error={isRead ? error : undefined} />
      <Filters placeholder="Job, request, node, session, trace">
        <Select name="state" label="State" of={STATES} />
        <Select
          name="pool"
          label="Pool"
          of={[
            { value: "", label: "All pools" },
            ...pools.map((value) => ({ value, label: value })),
          ]}
        />
        <Applied name="session" />
      </Filters>
      {!isRead ? (
        error ? (
          <Failure error={error} retry={refresh} />
        ) : (
          <Loading what="jobs" />
        )
      ) : (
        <>
          <List
            label="Jobs"
            columns={JOB_COLUMNS}
            rows={shown}
            keyOf={({ job_id }) => job_id}
            empty={
              jobs.length === 0 ? (
                <Empty title="No jobs">
                  <p>
                    Jobs come from sessions and over HTTP; they are kept for a while after they end.
                  </p>
                </Empty>
              ) : (
                <Empty title="No job matches this filter" />
              )
            }
          />
          {older && (
            <p class="more">
              <button type="button" class="button" onClick={older}>
                Show older jobs
              </button>
            </p>
          )}
        </>
      )}
      {isSubmitting && <JobForm pools={pools} onClose={() => setSubmitting(false)} />}
    </Page>
  );
}

export const JOB_COLUMNS: Column<Job>[] = [
  {
    title: "State",
    width: "132px",
    narrow: "side",
    cell: (job) => <Badge {...jobCondition(job)} />,
  },
  {
    title: "Job",
    width: "104px",
    narrow: "title",
    cell: ({ job_id }) => (
      <span class="row-link-box">
        <JobLink id={job_id} />
      </span>
    ),
  },
  {
    title: "Request",
    width: "minmax(0, 1.6fr)",
    narrow: "line",
    cell: ({ request_id }) => (
      <span class="clip mono">
        <Text>{request_id}</Text>
      </span>
    ),
  },
  {
    title: "Pool",
    width: "minmax(0, 0.8fr)",
    narrow: "line",
    cell: ({ pool }) => (
      <span class="clip">
        <Text>{pool}</Text>
      </span>
    ),
  },
  { title: "Node", width: "minmax(0, 1fr)", cell: ({ node_id }) => <NodeLink address={node_id} /> },
  {
    title: "Attempt",
    width: "70px",
    isNumber: true,
    cell: ({ attempt_id }) => (
      <span class={attempt_id > 1 ? "tone-warn" : "quiet"}>{attempt_id}</span>
    ),
  },
  { title: "Took", width: "90px", isNumber: true, cell: (job) => <Took job={job} /> },
  {
    title: "Created",
    width: "90px",
    isNumber: true,
    narrow: "line",
    cell: ({ created_at }) => <Time at={created_at} />,
  },
];

function Took({ job }: { job: Job }) {
  const ms = jobDurationMs(job, now.value);
  return ms === undefined ? <span class="quiet none">–</span> : <span>{duration(ms)}</span>;
}

function matches(job: Job, query: string): boolean {
  if (query === "") return true;
  const texts = [
    job.job_id,
    job.request_id,
    job.pool,
    job.node_id,
    job.session_id,
    job.turn_id,
    job.trace_id,
    job.service,
  ];
  return texts.some((text) => text?.toLowerCase().includes(query));
}
