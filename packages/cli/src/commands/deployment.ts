import type { DeploymentView, DeploymentWhy } from "@tenure/protocol";
import { type Admin, allPages, ROUTES } from "@tenure/sdk";
import { Command } from "commander";
import pc from "picocolors";
import type { Context } from "../context.ts";
import { create } from "../deployment/create.ts";
import { drawList, drawOne, type NodeNames } from "../deployment/draw.ts";
import { followLog } from "../deployment/follow.ts";
import { apply, restart, rollback } from "../deployment/rollout.ts";
import { listAll, subcommand } from "../deployment/shared.ts";
import { print } from "../output.ts";
import { printable } from "../printable.ts";
import { connect, type RemoteFlags, tenantOf, tlsOf, tokenOf, withServerFlags } from "../remote.ts";

/** `tenure deployment …`: declares what should run and shows how it runs. */
export function deploymentCommand(context: Context): Command {
  const command = new Command();
  for (const add of [
    ls,
    show,
    apply,
    create,
    enable,
    disable,
    restart,
    rollback,
    move,
    logs,
    why,
    rm,
  ])
    command.addCommand(add(context));
  return command;
}

function ls(): Command {
  return subcommand("ls", "list deployments and their nodes")
    .option("--type <type>", "daemon or deployment")
    .option("--node <address>", "only deployments that this node owns")
    .action(async (flags: RemoteFlags & { type?: "daemon"; node?: string }) => {
      const admin = connect(flags);
      const items = await listAll(admin, { type: flags.type, address: flags.node });
      const names = flags.json ? new Map() : await nodeNames(admin);
      print(items, flags, (views) => drawList(views, names));
    });
}

function show(): Command {
  return subcommand("show", "show one deployment and its status on each node")
    .argument("<name>")
    .action(async (id: string, flags: RemoteFlags) =>
      print(await connect(flags).call(ROUTES.readDeployment, { params: { id } }), flags, drawOne),
    );
}

const setEnabled = (name: string, enabled: boolean): Command =>
  subcommand(name, enabled ? "run deployments" : "stop deployments; they keep their node")
    .argument("<name...>")
    .action(async (ids: string[], flags: RemoteFlags) => {
      const admin = connect(flags);
      const views: DeploymentView[] = [];
      for (const id of ids)
        views.push(
          await admin.call(ROUTES.updateDeployment, { params: { id }, body: { enabled } }),
        );
      print(views, flags, (all) => drawList(all));
    });
const enable = (): Command => setEnabled("enable", true);
const disable = (): Command => setEnabled("disable", false);

interface MoveFlags extends RemoteFlags {
  tenant: string;
  force?: boolean;
}

function move(): Command {
  const command = new Command("move").description("move deployments to another tenant");
  return withServerFlags(command)
    .argument("<name...>")
    .requiredOption("--tenant <tenant>", "tenant to move to")
    .option(
      "--force",
      "move even if the current node does not serve that tenant; two copies may run",
    )
    .action(async (ids: string[], { tenant, force = false, ...flags }: MoveFlags) => {
      const admin = connect(flags);
      const body = { tenant, ...(force && { force }) };
      const views: DeploymentView[] = [];
      for (const id of ids)
        views.push(await admin.call(ROUTES.updateDeployment, { params: { id }, body }));
      print(views, flags, (all) => drawList(all));
    });
}

interface LogFlags extends RemoteFlags {
  follow?: boolean;
  lines?: string;
  node?: string;
  logFile?: string;
}

function logs(): Command {
  return subcommand("logs", "read a deployment's log from its node")
    .argument("<name>")
    .option("-f, --follow", "keep printing new lines")
    .option("-n, --lines <n>", "number of lines from the end")
    .option("--node <name>", "read from this node (address or name)")
    .option("--log-file <n>", "0: current file, 1: newest rotated file, …")
    .action(async (id: string, flags: LogFlags) => {
      const query = {
        ...(flags.lines !== undefined && { lines: flags.lines }),
        ...(flags.node !== undefined && { node: flags.node }),
        ...(flags.logFile !== undefined && { file: flags.logFile }),
        ...tenantQuery(flags),
      };
      if (!flags.follow) {
        const page = await connect(flags).call(ROUTES.readLogs, {
          params: { id },
          query: query as never,
        });
        return print(page, flags, ({ lines }) => lines.map(printable).join("\n"));
      }
      const stopping = new AbortController();
      process.once("SIGINT", () => stopping.abort());
      const { signal } = stopping;
      const [admin, token] = [connect(flags), tokenOf(flags)];
      const server = { admin, url: flags.url, token, tls: tlsOf(flags) };
      const chunks = followLog({ ...server, id, query, signal, onMove });
      for await (const lines of chunks)
        for (const line of lines) process.stdout.write(`${printable(line)}\n`);
    });
}

/** `followLog` sends its own request, which needs the tenant too. */
function tenantQuery(flags: RemoteFlags): Record<string, string> {
  const tenant = tenantOf(flags);
  return tenant === undefined ? {} : { tenant };
}

const onMove = (address: string | undefined): void => {
  const text =
    address === undefined
      ? "log stream ended; waiting for it to resume"
      : `log continues on node ${address}`;
  process.stderr.write(`${pc.dim(`--- ${printable(text)}`)}\n`);
};

function why(): Command {
  return subcommand("why", "explain why a deployment is unassigned or not running")
    .argument("<name>")
    .action(async (id: string, flags: RemoteFlags) =>
      print(
        await connect(flags).call(ROUTES.explainDeployment, { params: { id } }),
        flags,
        drawWhy,
      ),
    );
}

function rm(): Command {
  return subcommand("rm", "delete deployments; their nodes stop them")
    .argument("<name...>")
    .action(async (ids: string[], flags: RemoteFlags) => {
      const admin = connect(flags);
      for (const id of ids) await admin.call(ROUTES.deleteDeployment, { params: { id } });
      print(
        { removed: ids },
        flags,
        ({ removed }) => `removed ${removed.map(printable).join(", ")}`,
      );
    });
}

async function nodeNames(admin: Admin): Promise<NodeNames> {
  const nodes = await allPages((page) =>
    admin.call(ROUTES.listNodes, { query: { online: true, ...page } }),
  );
  return new Map(nodes.map(({ node_id, name }) => [node_id, name]));
}

function drawWhy({ answer, reasons }: DeploymentWhy): string {
  const rest = reasons.filter(({ message }) => message !== answer);
  return [printable(answer), ...rest.map(({ message }) => `  - ${printable(message)}`)].join("\n");
}
