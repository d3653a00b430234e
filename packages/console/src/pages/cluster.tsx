import type { ClusterView, Instance, MembershipView } from "@tenure/protocol";
import { call } from "../api.ts";
import { cluster, membership } from "../data.ts";
import { Action } from "../parts/action.tsx";
import { Badge } from "../parts/badge.tsx";
import { Id } from "../parts/id.tsx";
import { type Column, List } from "../parts/list.tsx";
import { Card, Facts, Page } from "../parts/page.tsx";
import { Empty, Failure, Loading, Stale } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Time } from "../parts/time.tsx";
import { DeadLetters } from "./dead-letters.tsx";

/** Instances, their stores, and messages between them. */
export function ClusterPage() {
  const { value, error } = cluster.use();
  const members = membership.use();
  if (!value) {
    return (
      <Page title="Cluster">
        {error ? <Failure error={error} retry={cluster.refresh} /> : <Loading what="the cluster" />}
      </Page>
    );
  }
  return (
    <Page
      title="Cluster"
      sub={`Instances of one fleet, without a leader. Version ${value.version}.`}
    >
      <Stale error={error} />
      {value.timeline?.state === "unconfirmed" && <Timeline />}
      <Card title="Instances" side={`${value.instances.length}`} flush>
        <List
          label="Instances"
          columns={columnsOf(value)}
          rows={value.instances}
          keyOf={({ instance_id }) => instance_id}
          empty={<Empty title="No instances" />}
        />
      </Card>
      <div class="columns">
        <Card title="Stores" flush>
          <Stores view={value} />
        </Card>
        <Card title="Membership">
          {members.value ? (
            <Membership view={members.value} />
          ) : members.error ? (
            <Failure error={members.error} retry={membership.refresh} />
          ) : (
            <Loading what="membership" />
          )}
        </Card>
      </div>
      <DeadLetters hasRedis={value.phase2} />
    </Page>
  );
}

function Timeline() {
  return (
    <div class="banner banner-bad banner-row" role="alert">
      <div>
        <strong>Postgres has another history, or is an older copy.</strong> It may have lost
        allocated nonces, so none are allocated until an operator confirms.
      </div>
      <Action
        label="Confirm"
        title="Accept the history of this Postgres?"
        done="Nonce allocation resumed"
        danger
        onDo={async () => cluster.set(await call("confirmTimeline", {}))}
      >
        <p>
          Compare the next nonce of every signer with its account on the chain, and raise those that
          lag behind. Then confirm: allocation continues from the data of this Postgres.
        </p>
      </Action>
    </div>
  );
}

const columnsOf = (view: ClusterView): Column<Instance>[] => [
  {
    title: "State",
    width: "116px",
    narrow: "side",
    cell: ({ live, instance_id }) =>
      live ? (
        <Badge tone="good" word={instance_id === view.instance_id ? "this instance" : "live"} />
      ) : (
        <Badge tone="bad" word="lost" />
      ),
  },
  {
    title: "Instance",
    width: "minmax(0, 1.2fr)",
    narrow: "title",
    cell: ({ instance_id }) => <Id of={instance_id} />,
  },
  {
    title: "Address",
    width: "minmax(0, 1.4fr)",
    narrow: "line",
    cell: ({ url }) => (
      <span class="clip mono">
        <Text>{url}</Text>
      </span>
    ),
  },
  { title: "Version", width: "64px", cell: ({ version }) => <Text>{version}</Text> },
  { title: "Boot", width: "104px", cell: ({ boot_id }) => <Id of={boot_id} /> },
  {
    title: "Inbox",
    width: "52px",
    isNumber: true,
    cell: ({ inbox_pending }) => inbox_pending ?? <span class="quiet none">–</span>,
  },
  {
    title: "Dead letters",
    width: "92px",
    isNumber: true,
    cell: ({ dlq_length }) =>
      dlq_length === null ? (
        <span class="quiet none">–</span>
      ) : (
        <span class={dlq_length > 0 ? "tone-warn" : ""}>{dlq_length}</span>
      ),
  },
  {
    title: "Renews",
    width: "64px",
    isNumber: true,
    narrow: "line",
    cell: ({ expires_at }) => <Time at={expires_at} />,
  },
];

function Stores({ view }: { view: ClusterView }) {
  return (
    <ul class="plain-rows">
      {view.dependencies.map(({ name, kind, ok, reason }) => (
        <li key={name}>
          <Badge tone={ok ? "good" : "bad"} word={ok ? "up" : "down"} />
          <span class="grow">
            {name} {kind !== name && <span class="quiet">{kind}</span>}
            {reason && (
              <span class="tone-bad">
                {" "}
                <Text>{reason}</Text>
              </span>
            )}
          </span>
        </li>
      ))}
      <li>
        <Badge tone="idle" word={view.phase2 ? "shared" : "single"} />
        <span class="grow">
          {view.phase2
            ? "jobs and routing are shared by all instances"
            : "jobs stay within one instance (no Redis)"}
        </span>
      </li>
    </ul>
  );
}

function Membership({ view }: { view: MembershipView }) {
  const { brake } = view;
  return (
    <>
      <Facts
        of={[
          [
            "View",
            view.view === "ready" ? (
              <Badge tone="good" word="ready" />
            ) : (
              <Badge tone="warn" word="settling" />
            ),
          ],
          [
            "Node-units",
            <span key="m" class="number">
              {view.members.length}
            </span>,
          ],
          ...(view.settles_at
            ? ([["Ready", <Time key="s" at={view.settles_at} />]] as [
                string,
                preact.ComponentChildren,
              ][])
            : []),
          [
            "Mass-loss brake",
            brake.active ? <Badge tone="bad" word="on" /> : <Badge tone="good" word="off" />,
          ],
        ]}
      />
      {brake.active && (
        <div class="brake">
          <p>
            {brake.lost} of {brake.members} node-units were lost together
            {brake.since && (
              <>
                {" "}
                <Time at={brake.since} />
              </>
            )}
            . Their deployments do not move until the nodes are back.
          </p>
          <Action
            label="Release the brake"
            title="Release the mass-loss brake?"
            verb="Release"
            done="Brake released"
            danger
            onDo={async () => membership.set(await call("releaseBrake", {}))}
          >
            <p>
              The other nodes take over all deployments of the lost ones. If the lost nodes still
              run and are only disconnected, two copies of each run for a while. Release the brake
              only if you know that the nodes are down.
            </p>
          </Action>
        </div>
      )}
    </>
  );
}
