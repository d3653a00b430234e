import type { ClusterView, MembershipView, Stats } from "@tenure/protocol";

/** A problem for the operator. */
export interface Concern {
  tone: "bad" | "warn";
  title: string;
  detail: string;
  href: string;
}

export interface Fleet {
  cluster: ClusterView | undefined;
  membership: MembershipView | undefined;
  stats: Stats | undefined;
}

/** Present and likely problems, worst first. Empty when there are none. */
export function concernsOf({ cluster, membership, stats }: Fleet): Concern[] {
  const concerns = [
    ...(cluster ? ofCluster(cluster) : []),
    ...(membership ? ofMembership(membership) : []),
    ...(stats ? ofStats(stats) : []),
  ];
  return concerns.sort((a, b) => Number(b.tone === "bad") - Number(a.tone === "bad"));
}

function ofCluster({ dependencies, timeline }: ClusterView): Concern[] {
  const down = dependencies
    .filter(({ ok }) => !ok)
    .map(
      ({ name, reason }): Concern => ({
        tone: "bad",
        title: `${capital(name)} is down`,
        detail: reason ?? "Work that needs this store waits until it is back.",
        href: "/cluster",
      }),
    );
  if (timeline?.state !== "unconfirmed") return down;
  return [
    ...down,
    {
      tone: "bad",
      title: "Postgres has another history or is an older copy",
      detail: "No nonces are allocated until an operator confirms the history.",
      href: "/cluster",
    },
  ];
}

function ofMembership({ view, brake }: MembershipView): Concern[] {
  const concerns: Concern[] = [];
  if (brake.active) {
    concerns.push({
      tone: "bad",
      title: "The mass-loss brake is on",
      detail: `${brake.lost} of ${brake.members} node-units were lost together. Their deployments do not move until the nodes are back or you release the brake.`,
      href: "/cluster",
    });
  }
  if (view === "settling") {
    concerns.push({
      tone: "warn",
      title: "The members view is settling",
      detail: "After a start no deployment moves until every node had time to reconnect.",
      href: "/cluster",
    });
  }
  return concerns;
}

function ofStats({ deployments, nodes, signers, dlq }: Stats): Concern[] {
  const concerns: (Concern | false)[] = [
    deployments.failing > 0 && {
      tone: "bad",
      title: `${counted(deployments.failing, "deployment")} ${deployments.failing === 1 ? "fails" : "fail"}`,
      detail: "The process crashed, the install failed, or the node refused it.",
      href: "/deployments?state=failing",
    },
    deployments.unassigned > 0 && {
      tone: "warn",
      title: `${counted(deployments.unassigned, "deployment")} without a node`,
      detail: "Not claimed by any node. Open the list to see why.",
      href: "/deployments?state=pending",
    },
    signers.quarantined > 0 && {
      tone: "warn",
      title: `${counted(signers.quarantined, "nonce")} in quarantine`,
      detail: "Holders timed out. Mark each nonce used or unused.",
      href: "/signers",
    },
    dlq.entries > 0 && {
      tone: "warn",
      title: counted(dlq.entries, "dead letter"),
      detail: "Messages between instances that could not be processed.",
      href: "/cluster",
    },
    nodes.draining > 0 && {
      tone: "warn",
      title: `${counted(nodes.draining, "node")} draining`,
      detail: "Draining nodes get no new work; their deployments move away.",
      href: "/nodes?state=draining",
    },
  ];
  return concerns.filter((concern) => concern !== false);
}

const counted = (count: number, noun: string): string =>
  `${count} ${noun}${count === 1 ? "" : "s"}`;
const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
