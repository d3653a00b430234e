import { setTimeout as wait } from "node:timers/promises";
import type { DeploymentView, NodeView } from "@tenure/protocol";
import { type Admin, allPages, ROUTES, TenureError } from "@tenure/sdk";
import { Command } from "commander";
import pc from "picocolors";
import type { Context } from "../context.ts";
import { type DrainStep, followDrain } from "../node/drain.ts";
import { runCommand } from "../node/run.ts";
import { ago, type Cell, fields, print, shortId, table } from "../output.ts";
import { printable } from "../printable.ts";
import { connect, type RemoteFlags, withServerFlags } from "../remote.ts";

export function nodeCommand(context: Context): Command {
  const node = new Command();
  node.addCommand(runCommand(context), { isDefault: true });
  withServerFlags(node.command("ls").description("list nodes"))
    .option("--all", "include nodes that left")
    .action(async (flags: RemoteFlags & { all?: boolean }) => {
      const nodes = await listAll(connect(flags), flags.all ? {} : { online: true });
      print({ items: nodes }, flags, ({ items }) => drawList(items));
    });
  withServerFlags(
    node.command("show <node>").description("show one node (address or name)"),
  ).action(async (id: string, flags: RemoteFlags) =>
    print(await connect(flags).call(ROUTES.readNode, { params: { id } }), flags, drawOne),
  );
  withServerFlags(
    node.command("drain <node>").description("give a node no new work; move its deployments away"),
  )
    .option("--no-wait", "return at once; the drain continues")
    .action(drain);
  withServerFlags(node.command("resume <node>").description("end a drain")).action(
    async (id: string, flags: RemoteFlags) =>
      print(await connect(flags).call(ROUTES.resumeNode, { params: { id } }), flags, drawChange),
  );
  withServerFlags(
    node.command("rm <node>").description("forget a node-unit that is offline and owns nothing"),
  ).action(async (id: string, flags: RemoteFlags) => {
    await connect(flags).call(ROUTES.removeNode, { params: { id } });
    print({ removed: id }, flags, () => `${printable(id)} forgotten`);
  });
  return node;
}

const POLL_EVERY_MS = 250;

async function drain(id: string, flags: RemoteFlags & { wait: boolean }): Promise<void> {
  const admin = connect(flags);
  const { node_id, node_unit } = await admin.call(ROUTES.readNode, { params: { id } });
  const follows = flags.wait && node_unit;
  // Read before the drain starts, so that a deployment that moves at once is reported too.
  const before = follows ? await ownedBy(admin, node_id) : [];
  const node = await admin.call(ROUTES.drainNode, { params: { id: node_id } });
  if (!follows) return print(node, flags, drawChange);
  const printLine = (line: string) => flags.json || process.stdout.write(`${line}\n`);
  printLine(drawChange(node));
  const names = new Map((await listAll(admin, {})).map(({ node_id, name }) => [node_id, name]));
  const steps = await followDrain({
    address: node_id,
    before,
    owned: () => ownedBy(admin, node_id),
    read: (deployment) =>
      undefinedIfNotFound(admin.call(ROUTES.readDeployment, { params: { id: deployment } })),
    why: async (deployment) =>
      (await admin.call(ROUTES.explainDeployment, { params: { id: deployment } })).answer,
    pause: () => wait(POLL_EVERY_MS),
    nowMs: () => performance.now(),
    onStep: (step) => void printLine(drawStep(step, names)),
  });
  print({ node: node_id, steps }, flags, () => `${printable(node.name)} is empty`);
}

async function ownedBy(admin: Admin, address: string): Promise<DeploymentView[]> {
  const owned = await allPages((page) =>
    admin.call(ROUTES.listDeployments, { query: { address, type: "deployment", ...page } }),
  );
  return owned.filter(({ enabled }) => enabled);
}

async function undefinedIfNotFound<T>(reading: Promise<T>): Promise<T | undefined> {
  return reading.catch((error: unknown) => {
    if (error instanceof TenureError && error.code === "NOT_FOUND") return undefined;
    throw error;
  });
}

function drawStep(step: DrainStep, names: ReadonlyMap<string, string>): string {
  const name = printable(step.name);
  switch (step.kind) {
    case "moved": {
      const gap = step.gapMs === undefined ? "" : ` (gap ${step.gapMs} ms)`;
      return `${pc.green("✓")} ${name} runs on ${printable(names.get(step.to) ?? shortId(step.to))}${gap}`;
    }
    case "gone":
      return `${pc.dim("-")} ${name} was removed or disabled`;
    case "stuck":
      return `${pc.yellow("…")} ${name}: ${printable(step.why)}`;
  }
}

const listAll = (admin: Admin, query: { online?: boolean }): Promise<NodeView[]> =>
  allPages((page) => admin.call(ROUTES.listNodes, { query: { ...query, ...page } }));

function drawList(nodes: NodeView[]): string {
  if (nodes.length === 0) return "no nodes";
  const rows = nodes.map((node) => [
    shortId(node.node_id),
    node.name,
    stateOf(node),
    node.node_unit ? node.claim_policy : "-",
    node.pools.join(",") || "-",
    node.capacity > 0 ? `${node.reserved}/${node.capacity}` : "-",
    node.resource_usage ? `${Math.round(node.resource_usage.cpu_percent)}%` : "-",
    node.instance_id ?? "-",
    ago(node.online ? node.joined_at : (node.left_at ?? node.joined_at)),
  ]);
  return table(
    ["ADDRESS", "NAME", "STATE", "POLICY", "POOLS", "SLOTS", "CPU", "INSTANCE", "SINCE"],
    rows,
  );
}

function stateOf({ online, draining }: NodeView): Cell {
  if (!online) return { text: "gone", paint: pc.red };
  return draining ? { text: "draining", paint: pc.yellow } : { text: "online", paint: pc.green };
}

function drawOne(node: NodeView): string {
  const text = (value: unknown) =>
    typeof value === "object" ? JSON.stringify(value) : String(value);
  return fields(Object.entries(node).map(([name, value]) => [name, printable(text(value))]));
}

const drawChange = (node: NodeView): string =>
  `${printable(node.name)} (${shortId(node.node_id)}) is ${node.draining ? "draining" : "taking work again"}`;
