import { type MatchWhole, TenureError, unfitness } from "@tenure/protocol";
import { EVERYTHING, type Scope } from "../kernel/scope.ts";
import { type DeploymentRow, type StatusRow, tenantOf } from "./deployment-row.ts";
import type { LogRequest } from "./node-relay.ts";
import { ENDED_STATES } from "./report-admission.ts";
import type { WhyNode } from "./why.ts";

export type LogQuery = Omit<LogRequest, "deployment_id" | "address" | "tenant"> & {
  node?: string | undefined;
};

export interface LogSourceOptions {
  /** The reports of nodes that serve its tenant, newest first. */
  statusesOf: (id: string) => Promise<StatusRow[]>;
  /** The owner, if it serves the tenant of the deployment; else "". */
  ownerOf: (row: DeploymentRow) => Promise<string>;
  /** The node-units of the scope that are present, and `also` these, by address or name. */
  surroundings: (scope: Scope, also: readonly string[]) => Promise<{ nodes: readonly WhyNode[] }>;
  matches: MatchWhole;
}

/** Chooses the node that a log is read from: the given one, else the one that runs the deployment. */
export function createLogSource({ statusesOf, ownerOf, surroundings, matches }: LogSourceOptions) {
  return async (
    scope: Scope,
    row: DeploymentRow,
    { node, ...rest }: LogQuery,
  ): Promise<LogRequest> => {
    const address = node === undefined ? await runnerOf(row) : await addressOf(scope, node);
    return { ...rest, deployment_id: row.id, tenant: tenantOf(row), address };
  };

  async function runnerOf(row: DeploymentRow): Promise<string> {
    const address = row.type === "daemon" ? await daemonRunner(row) : await lastRunner(row);
    if (address !== "") return address;
    throw new TenureError("NOT_FOUND", { what: "log of deployment", id: row.name });
  }

  /** The owner, else the node that reported last. */
  async function lastRunner(row: DeploymentRow): Promise<string> {
    const statuses = await statusesOf(row.id);
    const own = statuses.find(({ address }) => address === row.address);
    return own?.address ?? statuses[0]?.address ?? (await ownerOf(row));
  }

  /**
   * The only node that runs the daemon, else the last one that did. Only nodes that may run it count: another node could
   * answer with a forged log. When several run it the caller has to choose, so that logs are not confused.
   */
  async function daemonRunner(row: DeploymentRow): Promise<string> {
    const statuses = await statusesOf(row.id);
    const { nodes } = await surroundings(
      EVERYTHING,
      statuses.map(({ address }) => address),
    );
    const known = new Map(nodes.map((node) => [node.address, node]));
    const admitted = statuses.filter(({ address }) => {
      const node = known.get(address);
      return node !== undefined && unfitness(row, node, matches).length === 0;
    });
    const running = admitted.filter(
      ({ address, generation, state }) =>
        generation === row.generation && !ENDED_STATES.has(state) && known.get(address)?.present,
    );
    if (running.length <= 1) return (running[0] ?? admitted[0])?.address ?? "";
    const where = namesOf(running.map(({ address }) => known.get(address)!));
    const reason = `daemon ${row.name} runs on ${running.length} nodes (${where}); choose one with --node or ?node=`;
    throw new TenureError("CONFLICT", { reason });
  }

  /** By address, or by a name that only one node has: nodes choose their names themselves. */
  async function addressOf(scope: Scope, node: string): Promise<string> {
    const { nodes } = await surroundings(scope, [node]);
    if (nodes.some(({ address }) => address === node)) return node;
    const named = nodes.filter(({ name }) => name === node);
    const present = named.filter((one) => one.present);
    const [only, ...others] = present.length > 0 ? present : named;
    if (!only) throw new TenureError("NOT_FOUND", { what: "node", id: node });
    if (others.length === 0) return only.address;
    const reason = `${others.length + 1} nodes are named ${node}; choose one by its address`;
    throw new TenureError("CONFLICT", { reason });
  }
}

const NAMED_MAX = 20;

/** The names of these nodes; the addresses of those that share a name. */
function namesOf(nodes: readonly WhyNode[]): string {
  const isShared = ({ name }: WhyNode) => nodes.filter((one) => one.name === name).length > 1;
  const names = nodes.map((node) => (isShared(node) ? node.address : node.name)).sort();
  const more = names.length - NAMED_MAX;
  return `${names.slice(0, NAMED_MAX).join(", ")}${more > 0 ? `, and ${more} more` : ""}`;
}
