import type { Job } from "@tenure/protocol";
import { useMemo } from "preact/hooks";
import { call } from "../api.ts";
import { now } from "../clock.ts";
import { nodes } from "../data.ts";
import { type Attempt, attemptsOf, isEnded, jobCondition, jobDurationMs } from "../model/job.ts";
import { clockTime, duration, exact } from "../model/time.ts";
import { Action } from "../parts/action.tsx";
import { Badge } from "../parts/badge.tsx";
import { CopyButton, Id } from "../parts/id.tsx";
import { Card, Facts, Page } from "../parts/page.tsx";
import { Failure, Loading, Stale } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Time } from "../parts/time.tsx";
import { createResource } from "../resource.ts";
import { NodeLink, SessionLink, TurnLink } from "./links.tsx";

const BACK = { href: "/jobs", label: "Jobs" };

export function JobPage({ id }: { id: string }) {
  nodes.use();
  const job = useMemo(
    () =>
      createResource({
        read: () => call("readJob", { params: { id } }),
        everyMs: 2_000,
        topics: ["jobs"],
        isAbout: (item) => item.id === id,
      }),
    [id],
  );
  const { value, error } = job.use();
  if (!value) {
    return (
      <Page title="Job" back={BACK}>
        {error ? <Failure error={error} retry={job.refresh} /> : <Loading what="the job" />}
      </Page>
    );
  }
  return (
    <Page
      title={`Job ${id.slice(-8)}`}
      heading={<span class="mono">{id.slice(-8)}</span>}
      back={BACK}
      sub={
        <>
          <Badge {...jobCondition(value)} /> <Id of={id} whole />
        </>
      }
      actions={
        !isEnded(value) && (
          <Action
            label="Cancel job"
            verb="Cancel job"
            title="Cancel this job?"
            done="Cancellation requested"
            danger
            onDo={async () => job.set(await call("cancelJob", { params: { id } }))}
          >
            <p>The job ends as cancelled. A node that runs it gets a cancel message.</p>
          </Action>
        )
      }
    >
      <Stale error={error} />
      <Card>
        <Facts of={factsOf(value)} />
      </Card>
      <Card title="Timeline" side={<Took job={value} />}>
        <Timeline job={value} />
      </Card>
      {value.error && (
        <Card title="Error">
          <p>
            <span class="chip tone-bad">
              <Text>{value.error.code}</Text>
            </span>{" "}
            <Text>{value.error.message}</Text>
          </p>
        </Card>
      )}
      {value.body !== undefined && (
        <Card title="Result">
          <JsonBox value={value.body} />
        </Card>
      )}
    </Page>
  );
}

function Took({ job }: { job: Job }) {
  const ms = jobDurationMs(job, now.value);
  return ms === undefined ? null : <span class="number">{duration(ms)}</span>;
}

function factsOf(job: Job): Parameters<typeof Facts>[0]["of"] {
  const none = <span class="quiet none">–</span>;
  return [
    ["Request", <Id key="r" of={job.request_id} />],
    ["Pool", <Text key="p">{job.pool}</Text>],
    ["Node", <NodeLink key="n" address={job.node_id} />],
    [
      "Attempt",
      <span key="a" class="number">
        {job.attempt_id}
      </span>,
    ],
    [
      "Priority",
      <span key="y" class="number">
        {job.priority ?? 0}
      </span>,
    ],
    ["Service", job.service ? <Text>{job.service}</Text> : none],
    ["Session", job.session_id ? <SessionLink id={job.session_id} /> : none],
    ["Turn", job.turn_id ? <TurnLink id={job.turn_id} /> : none],
    ["Affinity", job.affinity ?? none],
    ["Trace", job.trace_id ? <Id of={job.trace_id} /> : none],
    ["Created", <Time key="c" at={job.created_at} />],
  ];
}

/** Each attempt as a bar on one scale, followed by its steps. */
function Timeline({ job }: { job: Job }) {
  const attempts = attemptsOf(job, now.value);
  const spans = attempts.flatMap((attempt) => attempt.spans);
  if (attempts.length === 0) return <p class="quiet">No steps recorded yet.</p>;
  const beginMs = Date.parse(job.created_at);
  const endMs = Math.max(beginMs + 1, ...spans.map(({ toMs }) => toMs));
  return (
    <ol class="attempts">
      {attempts.map((attempt) => (
        <li key={attempt.attemptId} class="attempt">
          <div class="attempt-head">
            <strong>Attempt {attempt.attemptId}</strong>
            {attempt.nodeId && (
              <span>
                on <NodeLink address={attempt.nodeId} />
              </span>
            )}
          </div>
          <Lane attempt={attempt} beginMs={beginMs} endMs={endMs} />
          <Steps attempt={attempt} beginMs={beginMs} />
        </li>
      ))}
    </ol>
  );
}

function Lane({ attempt, beginMs, endMs }: { attempt: Attempt; beginMs: number; endMs: number }) {
  const x = (ms: number): number => (1_000 * (ms - beginMs)) / (endMs - beginMs);
  const words = attempt.spans.map(
    ({ state, fromMs, toMs }) => `${state} ${duration(toMs - fromMs)}`,
  );
  return (
    <svg
      class="lane"
      viewBox="0 0 1000 14"
      preserveAspectRatio="none"
      role="img"
      aria-label={words.join(", ")}
    >
      <rect class="lane-ground" width="1000" height="14" />
      {attempt.spans.map(({ state, tone, fromMs, toMs }) => (
        <rect
          key={`${state}-${fromMs}`}
          class={`lane-span lane-${tone}`}
          x={x(fromMs)}
          width={Math.max(2, x(toMs) - x(fromMs))}
          height="14"
        >
          <title>{`${state}: ${duration(toMs - fromMs)}`}</title>
        </rect>
      ))}
    </svg>
  );
}

function Steps({ attempt, beginMs }: { attempt: Attempt; beginMs: number }) {
  return (
    <ol class="steps">
      {attempt.entries.map((entry) => (
        <li key={`${entry.at}-${entry.state}`}>
          <span class="step-time number" title={exact(entry.at)}>
            {clockTime(entry.at)}
          </span>
          <span class="step-offset number quiet">
            +{duration(Math.max(0, Date.parse(entry.at) - beginMs))}
          </span>
          <span class="step-state">{entry.state}</span>
          <span class="quiet grow">{entry.reason && <Text>{entry.reason}</Text>}</span>
          {entry.instance_id && (
            <span class="quiet wide-only">
              by <Id of={entry.instance_id} />
            </span>
          )}
        </li>
      ))}
    </ol>
  );
}

export function JsonBox({ value }: { value: unknown }) {
  const text = JSON.stringify(value, null, 2);
  return (
    <div class="code-box">
      <pre class="code">
        {text.split("\n").map((line, index) => (
          <div key={index}>
            <Text>{line}</Text>
          </div>
        ))}
      </pre>
      <CopyButton text={text} what="this JSON" />
    </div>
  );
}
