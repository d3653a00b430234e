import type { ClusterView, MembershipView, Stats } from "@tenure/protocol";

/** Something a person should look at, worst first. */
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

/** What is wrong, or may soon be, from what the server knows. An empty list means that nothing is. */
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
        title: `${capital(name)} does not answer`,
        detail: reason ?? "Work that needs it waits until it is back.",
        href: "/cluster",
      }),
    );
  if (timeline?.state !== "unconfirmed") return down;
  return [
    ...down,
    {
      tone: "bad",
      title: "Postgres came back as another history or an older copy",
      detail: "No nonce is handed out until an operator confirms it.",
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
      detail: `${brake.lost} of ${brake.members} node-units were lost together. Nothing is taken from them until they are back or you release it.`,
      href: "/cluster",
    });
  }
  if (view === "settling") {
    concerns.push({
      tone: "warn",
      title: "The members view is settling",
      detail: "After a start nothing is taken from anybody until every node had time to come back.",
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
      detail: "A process crashed, could not be installed, or its node refused it.",
      href: "/deployments?state=failing",
    },
    deployments.unassigned > 0 && {
      tone: "warn",
      title: `${counted(deployments.unassigned, "deployment")} without a node`,
      detail: "No node has claimed it. Open it to see why.",
      href: "/deployments?state=pending",
    },
    signers.quarantined > 0 && {
      tone: "warn",
      title: `${counted(signers.quarantined, "nonce")} in quarantine`,
      detail: "Their holders fell silent. Say whether each was used.",
      href: "/signers",
    },
    dlq.entries > 0 && {
      tone: "warn",
      title: counted(dlq.entries, "dead letter"),
      detail: "Messages between instances that could not take effect.",
      href: "/cluster",
    },
    nodes.draining > 0 && {
      tone: "warn",
      title: `${counted(nodes.draining, "node")} draining`,
      detail: "Given nothing new; what is there moves away.",
      href: "/nodes?state=draining",
    },
  ];
  return concerns.filter((concern) => concern !== false);
}

const counted = (count: number, noun: string): string =>
  `${count} ${noun}${count === 1 ? "" : "s"}`;
const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
