import type { DeploymentStatus, DeploymentView, DeploymentWhy } from "@tenure/protocol";
import { useEffect, useMemo } from "preact/hooks";
import { call } from "../../api.ts";
import { isOnline } from "../../data.ts";
import {
  currentStatuses,
  deploymentCondition,
  restartsOf,
  runs,
  statusCondition,
} from "../../model/deployment.ts";
import { envText } from "../../model/spec.ts";
import { duration } from "../../model/time.ts";
import { Badge, Labels } from "../../parts/badge.tsx";
import { CopyButton } from "../../parts/id.tsx";
import { type Column, List } from "../../parts/list.tsx";
import { Card, Facts } from "../../parts/page.tsx";
import { Empty, Failure, Loading } from "../../parts/states.tsx";
import { Text } from "../../parts/text.tsx";
import { Time } from "../../parts/time.tsx";
import { createResource } from "../../resource.ts";
import { NodeLink } from "../links.tsx";

export function DeploymentSummary({ view }: { view: DeploymentView }) {
  const { tone } = deploymentCondition(view, isOnline);
  return (
    <>
      {tone !== "good" && <Why view={view} />}
      <Card>
        <Facts of={factsOf(view)} />
      </Card>
      <Card title="Status by node" side={`${view.status.length}`} flush>
        <List
          label="Status by node"
          columns={STATUS_COLUMNS}
          rows={useMemo(() => newestFirst(view), [view])}
          keyOf={({ address }) => address}
          empty={<Empty title="No node has reported a status yet" />}
        />
      </Card>
      <div class="columns">
        <Card title="Arguments">
          <Lines of={view.args} empty="none" />
        </Card>
        <Card title="Environment">
          <Lines
            of={Object.entries(view.env).map(([name, value]) => `${name}=${envText(value)}`)}
            empty="empty"
          />
        </Card>
      </div>
    </>
  );
}

/** Why the deployment does not run; read again after each change. */
function Why({ view }: { view: DeploymentView }) {
  const why = useMemo(
    () =>
      createResource({
        read: () => call("explainDeployment", { params: { id: view.id } }),
        everyMs: 5_000,
      }),
    [view.id],
  );
  const { value, error } = why.use();
  useEffect(() => void why.refresh(), [view]);
  return (
    <Card title="Why">
      {value ? (
        <Reasons of={value.reasons} />
      ) : error ? (
        <Failure error={error} />
      ) : (
        <Loading what="the reasons" />
      )}
    </Card>
  );
}

const REASONS_SHOWN = 4;

/** The answer, followed by reasons. Many nodes may have the same reason; a few are shown. */
function Reasons({ of }: { of: DeploymentWhy["reasons"] }) {
  const rest = of.slice(REASONS_SHOWN);
  const line = ({ code, message, address }: (typeof of)[number], index: number) => (
    <li key={`${code}-${address}-${index}`}>
      <Text>{message}</Text> <span class="mono quiet">{code}</span>
    </li>
  );
  return (
    <>
      <p class="reason-first">
        <Text>{of[0]?.message ?? ""}</Text>
      </p>
      <ul class="reasons">{of.slice(1, REASONS_SHOWN).map(line)}</ul>
      {rest.length > 0 && (
        <details class="reasons-more">
          <summary>and {rest.length} more</summary>
          <ul class="reasons">{rest.map(line)}</ul>
        </details>
      )}
    </>
  );
}

function factsOf(view: DeploymentView): Parameters<typeof Facts>[0]["of"] {
  const [status] = currentStatuses(view);
  const none = <span class="quiet none">–</span>;
  const moving = view.moving_to !== "";
  return [
    [
      "Runs",
      <code key="r">
        <Text>{runs(view)}</Text>
      </code>,
    ],
    ["Type", <Text key="t">{view.type}</Text>],
    [
      "Node",
      view.type === "daemon" ? (
        "every node its selector admits"
      ) : (
        <NodeLink address={view.address} />
      ),
    ],
    ...(moving
      ? ([
          [
            "Moves to",
            <span key="m">
              <NodeLink address={view.moving_to} /> ({view.move_state})
            </span>,
          ],
        ] as [string, preact.ComponentChildren][])
      : []),
    [
      "Generation",
      <span key="g" class="number">
        {view.generation}
      </span>,
    ],
    [
      "Revision",
      <span key="v" class="number">
        {view.revision}
      </span>,
    ],
    [
      "Restarts",
      <span key="s" class="number">
        {restartsOf(view)}
      </span>,
    ],
    ["Process", status?.pid ? <span class="number">{status.pid}</span> : none],
    ["Started", status?.started_at ? <Time at={status.started_at} /> : none],
    ["Selector", <Labels key="l" of={view.selector} max={8} />],
    ["Moves after", view.lost_after_ms === 0 ? "at once" : duration(view.lost_after_ms)],
    ["Created", <Time key="c" at={view.created_at} />],
    ["Changed", <Time key="u" at={view.updated_at} />],
  ];
}

const STATUS_COLUMNS: Column<DeploymentStatus>[] = [
  {
    title: "State",
    width: "130px",
    narrow: "side",
    // The node may have left since.
    cell: (status) => (
      <Badge {...statusCondition({ ...status, past: status.past || !isOnline(status.address) })} />
    ),
  },
  {
    title: "Node",
    width: "minmax(0, 1fr)",
    narrow: "title",
    cell: ({ address }) => <NodeLink address={address} />,
  },
  { title: "Generation", width: "90px", isNumber: true, cell: ({ generation }) => generation },
  { title: "Restarts", width: "80px", isNumber: true, cell: ({ restarts }) => restarts },
  { title: "Ended with", width: "110px", cell: (status) => <Text>{endOf(status)}</Text> },
  {
    title: "Last error",
    width: "minmax(0, 2fr)",
    narrow: "line",
    cell: ({ last_error }) => (
      <span class="clip">
        <Text>{last_error ?? ""}</Text>
      </span>
    ),
  },
  {
    title: "Reported",
    width: "90px",
    isNumber: true,
    narrow: "line",
    cell: ({ updated_at }) => <Time at={updated_at} />,
  },
];

const newestFirst = ({ status }: DeploymentView): DeploymentStatus[] =>
  [...status].sort((a, b) => b.generation - a.generation || (a.updated_at < b.updated_at ? 1 : -1));

function endOf({ exit_code, signal }: DeploymentStatus): string {
  if (signal) return signal;
  return exit_code === null ? "–" : `code ${exit_code}`;
}

function Lines({ of, empty }: { of: string[]; empty: string }) {
  if (of.length === 0) return <p class="quiet">{empty}</p>;
  return (
    <div class="code-box">
      <pre class="code">
        {of.map((line, index) => (
          <div key={index}>
            <Text>{line}</Text>
          </div>
        ))}
      </pre>
      <CopyButton text={of.join("\n")} what="all lines" />
    </div>
  );
}
