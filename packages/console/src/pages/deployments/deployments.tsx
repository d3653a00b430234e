import type { DeploymentView } from "@tenure/protocol";
import { useMemo, useState } from "preact/hooks";
import { call } from "../../api.ts";
import {
  deployments,
  isAdmin,
  isOfAllTenants,
  isOnline,
  nodeName,
  nodes,
  online,
} from "../../data.ts";
import { deploymentCondition, GROUPS, groupOf, restartsOf, runs } from "../../model/deployment.ts";
import { Badge, Chip } from "../../parts/badge.tsx";
import { Choices, chosen, Filters, Select, sought } from "../../parts/filter.tsx";
import { Icon } from "../../parts/icons.tsx";
import { type Column, List } from "../../parts/list.tsx";
import { Page } from "../../parts/page.tsx";
import { Empty, Failure, Loading, Stale } from "../../parts/states.tsx";
import { Text } from "../../parts/text.tsx";
import { Time } from "../../parts/time.tsx";
import { showToast } from "../../parts/toast.tsx";
import { go } from "../../router.ts";
import { NodeLink } from "../links.tsx";
import { DeploymentForm } from "./deployment-form.tsx";

/** All deployments and their state. */
export function DeploymentsPage() {
  const { rows, version, isComplete, error } = deployments.use();
  nodes.use();
  const [isCreating, setCreating] = useState(false);
  const all = useMemo(
    () =>
      [...rows.values()].map((view) => ({
        view,
        group: groupOf(deploymentCondition(view, isOnline)),
      })),
    [version, online.value],
  );
  const state = chosen("state");
  const type = chosen("type");
  const query = sought();
  const shown = useMemo(
    () =>
      all
        .filter(
          ({ view, group }) =>
            (state === "" || group === state) &&
            (type === "" || view.type === type) &&
            matches(view, query),
        )
        .map(({ view }) => view),
    [all, state, type, query],
  );
  const columns = useMemo(deploymentColumns, []);
  const choices = [
    { value: "", label: "All", count: all.length },
    ...GROUPS.map((value) => ({
      value,
      label: value.charAt(0).toUpperCase() + value.slice(1),
      count: all.filter(({ group }) => group === value).length,
    })),
  ];

  return (
    <Page
      title="Deployments"
      sub="What should run on the fleet, and who owns it now."
      actions={
        isAdmin() && (
          <button type="button" class="button button-primary" onClick={() => setCreating(true)}>
            <Icon name="plus" /> New deployment
          </button>
        )
      }
    >
      <Stale error={isComplete ? error : undefined} />
      <Filters placeholder="Name, package, node, label">
        <Choices name="state" label="State" of={choices} />
        <Select
          name="type"
          label="Type"
          of={[
            { value: "", label: "Every type" },
            { value: "deployment", label: "Deployments" },
            { value: "daemon", label: "Daemons" },
          ]}
        />
      </Filters>
      {all.length === 0 && !isComplete ? (
        error ? (
          <Failure error={error} retry={deployments.refresh} />
        ) : (
          <Loading what="deployments" />
        )
      ) : (
        <List
          label="Deployments"
          columns={columns}
          rows={shown}
          keyOf={({ id }) => id}
          sortBy={{ column: 1 }}
          empty={
            all.length === 0 ? (
              <Empty title="Nothing is deployed yet">
                <p>
                  A deployment is a program that should run on one node at a time; a daemon runs on
                  every node.
                </p>
              </Empty>
            ) : (
              <Empty title="No deployment fits this filter" />
            )
          }
        />
      )}
      {isCreating && (
        <DeploymentForm
          title="New deployment"
          verb="Create"
          needsTenant={isOfAllTenants()}
          onSave={async (body) => {
            const created = await call("createDeployment", { body });
            deployments.put(created);
            showToast("good", `${created.name} was created`);
            go(`/deployments/${created.id}`);
          }}
          onClose={() => setCreating(false)}
        />
      )}
    </Page>
  );
}

export const deploymentColumns = (): Column<DeploymentView>[] => [
  {
    title: "State",
    width: "150px",
    narrow: "side",
    sort: (view) => deploymentCondition(view, isOnline).word,
    cell: (view) => <Badge {...deploymentCondition(view, isOnline)} />,
  },
  {
    title: "Name",
    width: "minmax(0, 1.6fr)",
    narrow: "title",
    sort: ({ name }) => name,
    cell: ({ name, id, tenant = "default" }) => (
      <a class="row-link" href={`/deployments/${id}`}>
        <Text>{isOfAllTenants() ? `${name} (${tenant})` : name}</Text>
      </a>
    ),
  },
  {
    title: "Runs",
    width: "minmax(0, 1.6fr)",
    narrow: "line",
    sort: runs,
    cell: (view) => (
      <span class="mono clip">
        <Text>{runs(view)}</Text>
      </span>
    ),
  },
  {
    title: "Node",
    width: "minmax(0, 1.1fr)",
    narrow: "line",
    sort: ({ type, address }) => (type === "daemon" ? "" : (nodeName(address) ?? address)),
    cell: ({ type, address }) =>
      type === "daemon" ? <Chip>every node</Chip> : <NodeLink address={address} />,
  },
  {
    title: "Restarts",
    width: "76px",
    isNumber: true,
    sort: restartsOf,
    cell: (view) => {
      const restarts = restartsOf(view);
      return <span class={restarts > 0 ? "tone-warn" : "quiet"}>{restarts}</span>;
    },
  },
  {
    title: "Generation",
    width: "92px",
    isNumber: true,
    sort: ({ generation }) => generation,
    cell: ({ generation }) => generation,
  },
  {
    title: "Changed",
    width: "92px",
    isNumber: true,
    sort: ({ updated_at }) => -Date.parse(updated_at),
    cell: ({ updated_at }) => <Time at={updated_at} />,
  },
];

function matches(view: DeploymentView, query: string): boolean {
  if (query === "") return true;
  const labels = Object.entries(view.selector).map(([name, value]) => `${name}=${value}`);
  const texts = [
    view.name,
    view.id,
    view.package_name,
    view.command,
    view.address,
    nodeName(view.address) ?? "",
    ...labels,
  ];
  return texts.some((text) => text.toLowerCase().includes(query));
}
