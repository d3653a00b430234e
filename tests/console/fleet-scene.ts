import { randomUUID } from "node:crypto";
import {
  type DeploymentReport,
  type DeploymentView,
  type NodeRegister,
  type ResourceUsage,
  ROUTES,
} from "@tenure/protocol";
import { type Admin, createAdmin, createNodeConnection, type NodeConnection } from "@tenure/sdk";
import { createTestNodeKey } from "@tenure/testing/fleet/node-key";
import { until } from "@tenure/testing/until";

/** A machine of the scene: a real connection that claims, reports and has logs, without running anything. */
export interface Unit {
  readonly address: string;
  readonly name: string;
  readonly connection: NodeConnection;
  claim(view: Pick<DeploymentView, "id" | "generation">): Promise<number>;
  report(report: DeploymentReport): Promise<void>;
  /** Adds to its log of a deployment; whoever follows it hears it. */
  log(deploymentId: string, ...lines: string[]): void;
  leave(): Promise<void>;
}

export interface PlayedNodeOptions {
  url: string;
  token?: string;
  name: string;
  usage?: ResourceUsage;
  /** Asked at every heartbeat, in place of `usage`. */
  sample?: () => ResourceUsage;
  describe?: Partial<NodeRegister>;
}

export function playNode(options: PlayedNodeOptions): Unit {
  const { url, token, name, usage, sample = () => usage, describe = {} } = options;
  const key = createTestNodeKey();
  const logs = new Map<string, string[]>();
  const followers = new Map<string, (lines: string[]) => void>();
  const linesOf = (id: string): string[] => logs.get(id) ?? [];
  const connection = createNodeConnection({
    urls: [url],
    token,
    key: { address: key.address, sign: async (bytes) => key.signBytes(bytes) },
    bootId: randomUUID(),
    describe: () => ({
      name,
      version: "0.1.0",
      tags: { node_unit: true },
      claim_policy: "deployment_count",
      trusted_package_regexp: "@acme/.*",
      ...describe,
    }),
    resourceUsage: sample,
    handlers: {
      "log.read": ({ deployment_id, lines = 100, file = 0 }) => ({
        lines: file === 0 ? linesOf(deployment_id).slice(-lines) : [`(rotated file ${file})`],
        next: String(linesOf(deployment_id).length),
        files: [0, 1, 2],
      }),
      "log.follow": ({ deployment_id, from }, { id, signal }) => {
        const tell = (lines: string[]) =>
          connection.send({
            type: "log_chunk",
            id,
            lines,
            next: String(linesOf(deployment_id).length),
          });
        followers.set(deployment_id, tell);
        signal.addEventListener("abort", () => followers.delete(deployment_id));
        const missed = linesOf(deployment_id).slice(Number(from ?? 0));
        if (missed.length > 0) setImmediate(() => tell(missed));
        return {};
      },
      "log.stop": () => ({}),
      "deployment.restart": () => ({}),
    },
  });
  connection.start();
  return {
    address: key.address,
    name,
    connection,
    async claim({ id, generation }) {
      const candidates = [{ id, generation }];
      return (await connection.call("deployment.claim", { candidates })).generation;
    },
    async report(report) {
      await connection.call("deployment.report", report);
    },
    log(deploymentId, ...lines) {
      logs.set(deploymentId, [...linesOf(deploymentId), ...lines]);
      followers.get(deploymentId)?.(lines);
    },
    leave: () => connection.close(),
  };
}

export async function unitsReady(units: readonly Unit[]): Promise<void> {
  await until(() => units.every(({ connection }) => connection.registration !== undefined), {
    deadlineMs: 60_000,
    what: "every node of the scene to be connected",
  });
}

export interface Operator extends Admin {
  create(body: Parameters<typeof makeDeployment>[1]): Promise<DeploymentView>;
}

export function createOperator(url: string, token?: string): Operator {
  const admin = createAdmin({ url, token });
  return { ...admin, create: (body) => makeDeployment(admin, body) };
}

function makeDeployment(admin: Admin, body: Record<string, unknown>): Promise<DeploymentView> {
  return admin.call(ROUTES.createDeployment, { body: body as never });
}

const HOUR_MS = 3_600_000;

/** Takes a deployment and says that it runs. */
export async function run(
  unit: Unit,
  view: DeploymentView,
  changes: Partial<DeploymentReport> = {},
): Promise<void> {
  const generation = view.type === "daemon" ? view.generation : await unit.claim(view);
  await unit.report({
    deployment_id: view.id,
    generation,
    state: "running",
    pid: 20_000 + Math.floor(Math.random() * 10_000),
    restarts: 0,
    started_at: new Date(Date.now() - 5 * HOUR_MS).toISOString(),
    ...changes,
  });
}
