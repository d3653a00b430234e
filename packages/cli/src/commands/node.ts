import type { NodeView } from "@tenure/protocol";
import { type Admin, ROUTES } from "@tenure/sdk";
import { Command } from "commander";
import pc from "picocolors";
import type { Context } from "../context.ts";
import { ago, type Cell, fields, print, shortId, table } from "../output.ts";
import { printable } from "../printable.ts";
import { asksServer, connect, type RemoteFlags } from "../remote.ts";

export function nodeCommand(_: Context): Command {
  const node = new Command();
  asksServer(node.command("ls").description("list nodes"))
    .option("--all", "also those that left")
    .action(async (flags: RemoteFlags & { all?: boolean }) => {
      const nodes = await listAll(connect(flags), flags.all ? {} : { online: true });
      print({ items: nodes }, flags, ({ items }) => drawList(items));
    });
  asksServer(node.command("show <node>").description("show one node, by address or name")).action(
    async (id: string, flags: RemoteFlags) =>
      print(await connect(flags).call(ROUTES.readNode, { params: { id } }), flags, drawOne),
  );
  asksServer(
    node.command("drain <node>").description("give it nothing new and move away what it has"),
  ).action(async (id: string, flags: RemoteFlags) =>
    print(await connect(flags).call(ROUTES.drainNode, { params: { id } }), flags, drawChange),
  );
  asksServer(node.command("resume <node>").description("end a drain")).action(
    async (id: string, flags: RemoteFlags) =>
      print(await connect(flags).call(ROUTES.resumeNode, { params: { id } }), flags, drawChange),
  );
  return node;
}

async function listAll(admin: Admin, query: { online?: boolean }): Promise<NodeView[]> {
  const nodes: NodeView[] = [];
  let cursor: string | undefined;
  do {
    const page = await admin.call(ROUTES.listNodes, { query: { ...query, limit: 500, cursor } });
    nodes.push(...page.items);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  return nodes;
}

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
