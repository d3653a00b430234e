import type { NodeView } from "@tenure/protocol";
import { useMemo } from "preact/hooks";
import { deployments, nodes } from "../data.ts";
import { loadOf, nodeCondition, runsByNode } from "../model/node.ts";
import { Badge, Labels } from "../parts/badge.tsx";
import { Choices, chosen, Filters, sought } from "../parts/filter.tsx";
import { type Column, List } from "../parts/list.tsx";
import { Meter } from "../parts/meter.tsx";
import { Page } from "../parts/page.tsx";
import { Empty, Failure, Loading, Stale } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Time } from "../parts/time.tsx";

const STATES: [value: string, label: string, fits: (node: NodeView) => boolean][] = [
  ["", "All", () => true],
  ["online", "Online", (node) => node.online],
  ["draining", "Draining", (node) => node.online && node.draining],
  ["away", "Away", (node) => !node.online],
];

/** All nodes with their state and load. */
export function NodesPage() {
  const { rows, version, isComplete, error } = nodes.use();
  const running = deployments.use();
  const all = useMemo(() => [...rows.values()], [version]);
  const counts = useMemo(() => runsByNode(running.rows.values()), [running.version]);
  const state = chosen("state");
  const query = sought();
  const shown = useMemo(() => {
    const fits = STATES.find(([value]) => value === state)?.[2] ?? (() => true);
    return all.filter((node) => fits(node) && matches(node, query));
  }, [all, state, query]);
  const columns = useMemo(() => columnsWith(counts), [counts]);

  return (
    <Page title="Nodes" sub="Machines that run deployments and jobs, including offline ones.">
      <Stale error={isComplete ? error : undefined} />
      <Filters placeholder="Name, address, label, pool">
        <Choices
          name="state"
          label="State"
          of={STATES.map(([value, label, fits]) => ({
            value,
            label,
            count: all.filter(fits).length,
          }))}
        />
      </Filters>
      {all.length === 0 && !isComplete ? (
        error ? (
          <Failure error={error} retry={nodes.refresh} />
        ) : (
          <Loading what="nodes" />
        )
      ) : (
        <List
          label="Nodes"
          columns={columns}
          rows={shown}
          keyOf={({ node_id }) => node_id}
          sortBy={{ column: 1 }}
          empty={all.length === 0 ? <NoNodes /> : <Empty title="No node matches this filter" />}
        />
      )}
    </Page>
  );
}

function NoNodes() {
  return (
    <Empty title="No nodes yet">
      <p>Add a machine to the fleet by running</p>
      <pre class="code">HOST_URL={window.location.origin} npx tenure node</pre>
    </Empty>
  );
}

const columnsWith = (counts: Map<string, number>): Column<NodeView>[] => [
  {
    title: "State",
    width: "104px",
    narrow: "side",
    sort: (node) => nodeCondition(node).word,
    cell: (node) => <Badge {...nodeCondition(node)} />,
  },
  {
    title: "Name",
    width: "minmax(0, 1fr)",
    narrow: "title",
    sort: ({ name }) => name,
    cell: ({ name, node_id }) => (
      <a class="row-link" href={`/nodes/${encodeURIComponent(node_id)}`}>
        <Text>{name}</Text>
      </a>
    ),
  },
  {
    title: "Load",
    width: "108px",
    narrow: "line",
    sort: (node) => loadOf(node)?.share ?? -1,
    cell: (node) => <Load node={node} />,
  },
  {
    title: "Slots",
    width: "104px",
    narrow: "line",
    sort: ({ reserved, capacity }) => (capacity > 0 ? reserved / capacity : -1),
    cell: ({ reserved, capacity }) =>
      capacity > 0 ? (
        <Meter
          value={reserved}
          max={capacity}
          label="Slots used"
          text={`${reserved}/${capacity}`}
        />
      ) : (
        <span class="quiet none">–</span>
      ),
  },
  {
    title: "Runs",
    width: "60px",
    isNumber: true,
    sort: ({ node_id }) => counts.get(node_id) ?? 0,
    cell: ({ node_id }) => <span title="deployments">{counts.get(node_id) ?? 0}</span>,
  },
  {
    title: "Policy",
    width: "132px",
    sort: ({ claim_policy }) => claim_policy,
    cell: ({ claim_policy, node_unit }) =>
      node_unit ? <Text>{claim_policy}</Text> : <span class="quiet">worker</span>,
  },
  {
    title: "Labels",
    width: "minmax(0, 1.7fr)",
    narrow: "line",
    cell: ({ labels }) => <Labels of={labels} max={2} />,
  },
  {
    title: "Since",
    width: "84px",
    isNumber: true,
    sort: ({ joined_at }) => -Date.parse(joined_at),
    cell: ({ joined_at, left_at, online }) => (
      <Time at={online ? joined_at : (left_at ?? joined_at)} />
    ),
  },
];

function Load({ node }: { node: NodeView }) {
  const load = loadOf(node);
  if (!load) return <span class="quiet none">–</span>;
  return <Meter value={load.share} max={1} label={load.label} text={load.text} />;
}

function matches(node: NodeView, query: string): boolean {
  if (query === "") return true;
  const labels = Object.entries(node.labels).map(([name, value]) => `${name}=${value}`);
  const texts = [
    node.name,
    node.node_id,
    node.claim_policy,
    ...labels,
    ...node.pools,
    ...node.services,
  ];
  return texts.some((text) => text.toLowerCase().includes(query));
}
