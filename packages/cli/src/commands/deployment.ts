import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import type { DeploymentCreate, DeploymentView, DeploymentWhy } from "@tenure/protocol";
import { type Admin, allPages, ROUTES, TenureError } from "@tenure/sdk";
import { Command, InvalidArgumentError } from "commander";
import pc from "picocolors";
import type { Context } from "../context.ts";
import { type Change, changeFor, needsNewProcess, parseDesired } from "../deployment/desired.ts";
import { drawList, drawOne, type NodeNames } from "../deployment/draw.ts";
import { followLog } from "../deployment/follow.ts";
import { currentStatuses, type RollItem, type RollStep, roll } from "../deployment/rolling.ts";
import { print } from "../output.ts";
import { inParallel } from "../parallel.ts";
import { printable } from "../printable.ts";
import { asksServer, connect, type RemoteFlags, tenantOf, tokenOf } from "../remote.ts";

/** `tenure deployment …`: what should run, and how it runs. */
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
    command.addCommand(add(context).exitOverride());
  return command;
}

/** Enough to keep a server busy, and few enough to leave it room for others. */
const CREATES_AT_ONCE = 32;

const named = (name: string, summary: string): Command =>
  asksServer(new Command(name).description(summary)).option(
    "--tenant <tenant>",
    "which tenant, with a token of all of them (TENURE_TENANT)",
  );

function ls(): Command {
  return named("ls", "list deployments and where they run")
    .option("--type <type>", "daemon or deployment")
    .option("--node <address>", "only those this node owns")
    .action(async (flags: RemoteFlags & { type?: "daemon"; node?: string }) => {
      const admin = connect(flags);
      const items = await listAll(admin, { type: flags.type, address: flags.node });
      const names = flags.json ? new Map() : await nodeNames(admin);
      print(items, flags, (views) => drawList(views, names));
    });
}

function show(): Command {
  return named("show", "show one deployment and what the nodes say of it")
    .argument("<name>")
    .action(async (id: string, flags: RemoteFlags) =>
      print(await connect(flags).call(ROUTES.readDeployment, { params: { id } }), flags, drawOne),
    );
}

interface RollFlags extends RemoteFlags {
  maxUnavailable: number;
  timeout: number;
}

function rolls(command: Command): Command {
  return command
    .option("--max-unavailable <n>", "how many may be without a process at once", count, 1)
    .option("--timeout <seconds>", "how long one may take to run again", count, 120);
}

function apply(context: Context): Command {
  return rolls(named("apply", "make the fleet what a file says; doing it again changes nothing"))
    .requiredOption("-f, --file <file>", "YAML or JSON; - reads standard input")
    .option("--dry-run", "only say what would change")
    .option("--force", "a lowered lost_after_ms counts at once; two copies are possible")
    .action(async (flags: RollFlags & { file: string; dryRun?: boolean; force?: boolean }) => {
      const admin = connect(flags);
      const desired = parseDesired(readFileSync(flags.file === "-" ? 0 : flags.file, "utf8"));
      const present = new Map((await listAll(admin)).map((view) => [view.name, view]));
      const changes = desired.map((one) => changeFor(one, present.get(one.name)));
      print(
        changes.map(summarize),
        flags,
        (rows) => rows.map(drawChange).join("\n") || "nothing in the file",
      );
      if (flags.dryRun) return;
      const creates = changes.filter(({ action }) => action === "create");
      await inParallel(creates, CREATES_AT_ONCE, (change) => createOnce(admin, change));
      const updates = changes.filter(({ action }) => action === "update");
      await rollAll(
        admin,
        flags,
        context,
        updates.map((change) => updateItem(admin, change, flags.force)),
      );
    });
}

/**
 * Creates what the file names. A create that was sent to a second server after the first did not answer may find its
 * own row there, and so may two runs of the same file: a row that is as the file says is what was asked for.
 */
async function createOnce(admin: Admin, { name, fields }: Change): Promise<void> {
  try {
    await admin.call(ROUTES.createDeployment, { body: fields as DeploymentCreate });
  } catch (error) {
    if (!(error instanceof TenureError) || error.code !== "CONFLICT") throw error;
    const present = await admin.call(ROUTES.readDeployment, { params: { id: name } });
    if (changeFor({ ...fields, name }, present).action !== "none") throw error;
  }
}

const updateItem = (admin: Admin, change: Change, force = false): RollItem => ({
  name: change.name,
  before: change.before,
  restarts: change.before?.enabled === true && needsNewProcess(change) && isRunning(change.before),
  change: () =>
    admin.call(ROUTES.updateDeployment, {
      params: { id: change.before!.id },
      // What the comparison was made with: whoever changed it since is not overwritten.
      body: { ...change.fields, if_revision: change.before!.revision, ...(force && { force }) },
    }),
});

interface CreateFlags extends RemoteFlags {
  name?: string;
  package?: string;
  command?: string;
  arg: string[];
  env: string[];
  selector: string[];
  type?: string;
  pin?: string;
  lostAfterMs?: number;
  disabled?: boolean;
  count: number;
}

function create(): Command {
  const several = (value: string, all: string[]): string[] => [...all, value];
  return named("create", "create a deployment, or several of the same kind")
    .option("--name <name>", "with --count they are named <name>-1, <name>-2, …")
    .option("--package <name@version>", "npm package at an exact version")
    .option("--command <command>", "only on nodes that allow custom commands")
    .option("--arg <arg>", "an argument; may be repeated", several, [])
    .option("--env <NAME=value>", "may be repeated", several, [])
    .option("--selector <label=value>", "only nodes with this label; may be repeated", several, [])
    .option("--type <type>", "daemon or deployment")
    .option("--pin <address>", "bind it to one node")
    .option("--lost-after-ms <ms>", "how long a lost node keeps it", Number)
    .option("--disabled", "create it without running it")
    .option("--count <n>", "how many", count, 1)
    .action(async (flags: CreateFlags) => {
      const admin = connect(flags);
      const made: DeploymentView[] = [];
      for (let n = 1; n <= flags.count; n++) {
        const suffix = flags.count > 1 && flags.name !== undefined ? `-${n}` : "";
        const body = { ...specOf(flags), ...(flags.name && { name: flags.name + suffix }) };
        made.push(await admin.call(ROUTES.createDeployment, { body }));
      }
      print(made, flags, (views) => drawList(views));
    });
}

function specOf(flags: CreateFlags): DeploymentCreate {
  // The last @: the first may belong to a scope.
  const at = flags.package?.lastIndexOf("@") ?? -1;
  return {
    ...(flags.package !== undefined && {
      package_name: at > 0 ? flags.package.slice(0, at) : flags.package,
      package_version: at > 0 ? flags.package.slice(at + 1) : "",
    }),
    ...(flags.command !== undefined && { command: flags.command }),
    args: flags.arg,
    env: pairs(flags.env),
    selector: pairs(flags.selector),
    ...(flags.type !== undefined && { type: flags.type }),
    ...(flags.pin !== undefined && { pin: flags.pin }),
    ...(flags.lostAfterMs !== undefined && { lost_after_ms: flags.lostAfterMs }),
    ...(flags.disabled && { enabled: false }),
  };
}

const switching = (name: string, enabled: boolean): Command =>
  named(name, enabled ? "let them run" : "stop them; they keep their node")
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
const enable = (): Command => switching("enable", true);
const disable = (): Command => switching("disable", false);

function restart(context: Context): Command {
  return rolls(named("restart", "restart them one after another; stops at the first that fails"))
    .argument("<name...>")
    .action(async (ids: string[], flags: RollFlags) => {
      const admin = connect(flags);
      const views = await readAll(admin, ids);
      const items = views.map((before) => ({
        name: before.name,
        before,
        restarts: true,
        change: () => admin.call(ROUTES.restartDeployment, { params: { id: before.id } }),
      }));
      await rollAll(admin, flags, context, items);
    });
}

function rollback(context: Context): Command {
  return rolls(named("rollback", "go back to the former specification, or to the one named"))
    .argument("<name...>")
    .option("--revision <n>", "which one", count)
    .action(async (ids: string[], flags: RollFlags & { revision?: number }) => {
      const admin = connect(flags);
      const views = await readAll(admin, ids);
      const body = flags.revision === undefined ? {} : { revision: flags.revision };
      const items = views.map((before) => ({
        name: before.name,
        before,
        restarts: before.enabled && isRunning(before),
        change: () => admin.call(ROUTES.rollbackDeployment, { params: { id: before.id }, body }),
      }));
      await rollAll(admin, flags, context, items);
    });
}

interface MoveFlags extends RemoteFlags {
  tenant: string;
  force?: boolean;
}

function move(): Command {
  const command = new Command("move").description("move them to another tenant");
  return asksServer(command)
    .argument("<name...>")
    .requiredOption("--tenant <tenant>", "the tenant they belong to from now on")
    .option(
      "--force",
      "also while a node runs them that does not serve it; two copies are possible",
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
  return named("logs", "read its log from the node that ran it")
    .argument("<name>")
    .option("-f, --follow", "go on as it grows")
    .option("-n, --lines <n>", "how many of the last lines")
    .option("--node <name>", "of this node, by address or name")
    .option("--log-file <n>", "0 is the one being written, 1 the newest rotated one")
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
      const chunks = followLog({ admin, url: flags.url, token, id, query, signal, onMove });
      for await (const lines of chunks)
        for (const line of lines) process.stdout.write(`${printable(line)}\n`);
    });
}

/** A log is followed by its own request, which must name the tenant as well. */
function tenantQuery(flags: RemoteFlags): Record<string, string> {
  const tenant = tenantOf(flags);
  return tenant === undefined ? {} : { tenant };
}

const onMove = (address: string | undefined): void => {
  const text =
    address === undefined
      ? "the log broke off; waiting for it to go on"
      : `the log goes on at node ${address}`;
  process.stderr.write(`${pc.dim(`--- ${printable(text)}`)}\n`);
};

function why(): Command {
  return named("why", "say why it is unassigned or not running")
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
  return named("rm", "delete them; their nodes stop them")
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

// --- what several commands need ---

const listAll = (
  admin: Admin,
  query: { type?: "daemon" | undefined; address?: string | undefined } = {},
): Promise<DeploymentView[]> =>
  allPages((page) => admin.call(ROUTES.listDeployments, { query: { ...query, ...page } }));

async function nodeNames(admin: Admin): Promise<NodeNames> {
  const nodes = await allPages((page) =>
    admin.call(ROUTES.listNodes, { query: { online: true, ...page } }),
  );
  return new Map(nodes.map(({ node_id, name }) => [node_id, name]));
}

const readAll = async (admin: Admin, ids: readonly string[]): Promise<DeploymentView[]> => {
  const views: DeploymentView[] = [];
  for (const id of ids) views.push(await admin.call(ROUTES.readDeployment, { params: { id } }));
  return views;
};

async function rollAll(
  admin: Admin,
  flags: RollFlags,
  context: Context,
  items: readonly RollItem[],
): Promise<void> {
  const onStep = ({ name, outcome, reason }: RollStep): void => {
    const mark = { started: pc.dim("…"), running: pc.green("✓"), failed: pc.red("✗") }[outcome];
    process.stderr.write(`${mark} ${printable(name)}${reason ? `: ${printable(reason)}` : ""}\n`);
  };
  const well = await roll(items, {
    maxUnavailable: flags.maxUnavailable,
    limitMs: flags.timeout * 1_000,
    read: (id) => admin.call(ROUTES.readDeployment, { params: { id } }),
    pause: () => wait(250),
    nowMs: () => performance.now(),
    onStep,
  });
  if (!well) context.exitCode = 1;
}

const isRunning = (view: DeploymentView): boolean =>
  currentStatuses(view).some(({ state }) => state === "running");

const summarize = ({ name, action, fields, before }: Change) => ({
  name,
  action,
  changes: Object.entries(fields).map(([field, after]) => ({
    field,
    // Values of env may be secrets, and what is printed ends in logs.
    before: field === "env" ? null : (before?.[field as keyof DeploymentView] ?? null),
    after: field === "env" ? null : (after ?? null),
  })),
});

function drawChange({ name, action, changes }: ReturnType<typeof summarize>): string {
  const mark = { create: pc.green("+"), update: pc.yellow("~"), none: pc.dim("=") }[action];
  const fields = changes.map(({ field, before, after }) =>
    field === "env" || action === "create"
      ? field
      : `${field}: ${JSON.stringify(before)} → ${JSON.stringify(after)}`,
  );
  return `${mark} ${printable(name)} ${printable(action === "none" ? "unchanged" : fields.join(", "))}`;
}

function drawWhy({ answer, reasons }: DeploymentWhy): string {
  const rest = reasons.filter(({ message }) => message !== answer);
  return [printable(answer), ...rest.map(({ message }) => `  - ${printable(message)}`)].join("\n");
}

function pairs(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const at = text.indexOf("=");
      if (at < 1)
        throw new TenureError("INVALID_REQUEST", { reason: `${text}: must be name=value` });
      return [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}

function count(text: string): number {
  if (!/^[1-9]\d{0,5}$/.test(text))
    throw new InvalidArgumentError("must be a whole number from 1 on");
  return Number(text);
}
