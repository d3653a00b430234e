import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import type { DeploymentCreate, DeploymentView } from "@tenure/protocol";
import { type Admin, ROUTES, TenureError } from "@tenure/sdk";
import type { Command } from "commander";
import pc from "picocolors";
import type { Context } from "../context.ts";
import { count } from "../numbers.ts";
import { print } from "../output.ts";
import { inParallel } from "../parallel.ts";
import { printable } from "../printable.ts";
import { connect, type RemoteFlags } from "../remote.ts";
import { type Change, changeFor, needsNewProcess, parseDesired } from "./desired.ts";
import { currentStatuses, type RollItem, type RollStep, roll } from "./rolling.ts";
import { listAll, subcommand } from "./shared.ts";

/** Enough to keep a server busy, few enough to leave room for other clients. */
const CREATES_AT_ONCE = 32;

interface RollFlags extends RemoteFlags {
  maxUnavailable: number;
  timeout: number;
}

function withRolloutFlags(command: Command): Command {
  return command
    .option("--max-unavailable <n>", "how many may be down at the same time", count, 1)
    .option("--timeout <seconds>", "how long each may take to run again", count, 120);
}

/** `tenure deployment apply`. */
export function apply(context: Context): Command {
  return withRolloutFlags(
    subcommand("apply", "create and update deployments from a file; idempotent"),
  )
    .requiredOption("-f, --file <file>", "YAML or JSON; - reads standard input")
    .option("--dry-run", "print the changes without making them")
    .option("--force", "apply a lower lost_after_ms at once; two copies may run")
    .action(async (flags: RollFlags & { file: string; dryRun?: boolean; force?: boolean }) => {
      const admin = connect(flags);
      const desired = parseDesired(readFileSync(flags.file === "-" ? 0 : flags.file, "utf8"));
      const present = new Map((await listAll(admin)).map((view) => [view.name, view]));
      const changes = desired.map((one) => changeFor(one, present.get(one.name)));
      print(
        changes.map(summarize),
        flags,
        (rows) => rows.map(drawChange).join("\n") || "the file has no deployments",
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
 * Creates one deployment. A create that is retried on another server, or a second run of the same file, may find the
 * row already there; a row that matches the file counts as success.
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
      // The revision of the comparison, so that a concurrent change is not overwritten.
      body: { ...change.fields, if_revision: change.before!.revision, ...(force && { force }) },
    }),
});

/** `tenure deployment restart`. */
export function restart(context: Context): Command {
  return withRolloutFlags(
    subcommand("restart", "restart one after another; stops at the first failure"),
  )
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

/** `tenure deployment rollback`. */
export function rollback(context: Context): Command {
  return withRolloutFlags(subcommand("rollback", "restore the previous revision, or the given one"))
    .argument("<name...>")
    .option("--revision <n>", "revision to restore", count)
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
  const succeeded = await roll(items, {
    maxUnavailable: flags.maxUnavailable,
    limitMs: flags.timeout * 1_000,
    read: (id) => admin.call(ROUTES.readDeployment, { params: { id } }),
    pause: () => wait(250),
    nowMs: () => performance.now(),
    onStep,
  });
  if (!succeeded) context.exitCode = 1;
}

const isRunning = (view: DeploymentView): boolean =>
  currentStatuses(view).some(({ state }) => state === "running");

const summarize = ({ name, action, fields, before }: Change) => ({
  name,
  action,
  changes: Object.entries(fields).map(([field, after]) => ({
    field,
    // Values of env may be secrets, and output ends in logs.
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
