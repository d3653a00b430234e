import type { NodeView } from "@tenure/protocol";
import { useMemo } from "preact/hooks";
import { call } from "../api.ts";
import { deployments, nodes } from "../data.ts";
import { nodeCondition } from "../model/node.ts";
import { Action } from "../parts/action.tsx";
import { Badge, Chip, Labels } from "../parts/badge.tsx";
import { Id } from "../parts/id.tsx";
import { List } from "../parts/list.tsx";
import { Meter } from "../parts/meter.tsx";
import { Card, Facts, Page } from "../parts/page.tsx";
import { Empty, Failure, Loading } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Time } from "../parts/time.tsx";
import { deploymentColumns } from "./deployments/deployments.tsx";
import { EventRows } from "./event-rows.tsx";
import { useEventsOf } from "./events-of.ts";

const BACK = { href: "/nodes", label: "Nodes" };

export function NodePage({ id }: { id: string }) {
  const { rows, isComplete, error } = nodes.use();
  // A link may contain the name instead of the address.
  const node = rows.get(id) ?? [...rows.values()].find(({ name }) => name === id);
  if (!node) {
    return (
      <Page title="Node" back={BACK}>
        {isComplete ? (
          <Empty title="Node not found">
            <p>Nodes are removed after a long time offline.</p>
          </Empty>
        ) : error ? (
          <Failure error={error} retry={nodes.refresh} />
        ) : (
          <Loading what="the node" />
        )}
      </Page>
    );
  }
  return <NodeDetails node={node} />;
}

function NodeDetails({ node }: { node: NodeView }) {
  const running = deployments.use();
  const here = useMemo(
    () =>
      [...running.rows.values()].filter(
        ({ address, type, status }) =>
          address === node.node_id ||
          (type === "daemon" && status.some((one) => one.address === node.node_id)),
      ),
    [running.version, node.node_id],
  );
  const columns = useMemo(() => deploymentColumns().filter(({ title }) => title !== "Node"), []);
  const events = useEventsOf(node.node_id);
  return (
    <Page
      title={node.name}
      heading={<Text>{node.name}</Text>}
      back={BACK}
      sub={
        <>
          <Badge {...nodeCondition(node)} /> <Id of={node.node_id} whole />
        </>
      }
      actions={<Actions node={node} />}
    >
      <Card>
        <Facts of={factsOf(node)} />
      </Card>
      <Card title="Deployments" side={`${here.length}`} flush>
        <List
          label="Deployments on this node"
          columns={columns}
          rows={here}
          keyOf={({ id }) => id}
          sortBy={{ column: 1 }}
          empty={<Empty title="No deployments" />}
        />
      </Card>
      <Card title="Events" flush>
        {events ? <EventRows of={events} /> : <Loading what="events" />}
      </Card>
    </Page>
  );
}

function Actions({ node }: { node: NodeView }) {
  const params = { id: node.node_id };
  if (node.draining) {
    return (
      <Action
        label="Resume"
        title={`Let ${node.name} take work again?`}
        done={`${node.name} takes work again`}
        primary
        onDo={async () => nodes.put(await call("resumeNode", { params }))}
      >
        <p>
          It may claim deployments and be given jobs from now on. What has moved away stays where it
          is.
        </p>
      </Action>
    );
  }
  return (
    <Action
      label="Drain"
      title={`Drain ${node.name}?`}
      done={`${node.name} is being drained`}
      disabled={node.online ? undefined : "it is not connected"}
      onDo={async () => nodes.put(await call("drainNode", { params }))}
    >
      <p>
        It is given nothing new. Jobs that run there end there. Its deployments move away one at a
        time, each when another node is ready for it.
      </p>
    </Action>
  );
}

function factsOf(node: NodeView): Parameters<typeof Facts>[0]["of"] {
  const usage = node.online ? node.resource_usage : null;
  const none = <span class="quiet none">–</span>;
  return [
    ["Kind", node.node_unit ? "node-unit" : "worker"],
    ["Claim policy", node.node_unit ? <Text>{node.claim_policy}</Text> : none],
    ["Version", <Text key="v">{node.version}</Text>],
    ["Instance", node.instance_id ? <Id of={node.instance_id} /> : none],
    [
      "Processor",
      usage ? (
        <Meter
          value={usage.cpu_percent}
          max={100}
          label="Processor"
          text={`${Math.round(usage.cpu_percent)} %`}
        />
      ) : (
        none
      ),
    ],
    [
      "Memory",
      usage ? (
        <Meter
          value={usage.memory_percent}
          max={100}
          label="Memory"
          text={`${Math.round(usage.memory_percent)} % · ${Math.round(usage.memory_mb).toLocaleString("en")} MB`}
        />
      ) : (
        none
      ),
    ],
    [
      "Slots",
      node.capacity > 0 ? (
        <Meter
          value={node.reserved}
          max={node.capacity}
          label="Slots"
          text={`${node.reserved} of ${node.capacity}`}
        />
      ) : (
        none
      ),
    ],
    [
      "Connection",
      <span key="e" class="number">
        epoch {node.epoch}
      </span>,
    ],
    [
      node.online ? "Joined" : "Left",
      <Time key="t" at={node.online ? node.joined_at : (node.left_at ?? node.joined_at)} />,
    ],
    ["Labels", <Labels key="l" of={node.labels} max={12} />],
    ["Pools", <Names key="p" of={node.pools} />],
    ["Services", <Names key="s" of={node.services} />],
    [
      "Trusted packages",
      node.trusted_package_regexp ? (
        <code key="r">
          <Text>{node.trusted_package_regexp}</Text>
        </code>
      ) : (
        none
      ),
    ],
    ["Own commands", node.custom_command ? "allowed" : "not allowed"],
  ];
}

function Names({ of }: { of: string[] }) {
  if (of.length === 0) return <span class="quiet none">–</span>;
  return (
    <span class="chips">
      {of.map((name) => (
        <Chip key={name}>{name}</Chip>
      ))}
    </span>
  );
}
