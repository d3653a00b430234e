import type { DeploymentView } from "@tenure/protocol";

export interface RollOptions {
  /** How many may be without a running process at the same time. */
  maxUnavailable: number;
  limitMs: number;
  read: (name: string) => Promise<DeploymentView>;
  pause: () => Promise<void>;
  nowMs: () => number;
  onStep: (step: RollStep) => void;
}

export interface RollStep {
  name: string;
  outcome: "started" | "running" | "failed";
  reason?: string;
}

export interface RollItem {
  name: string;
  /** The previous state; `undefined` for a new deployment. */
  before: DeploymentView | undefined;
  /** Whether to wait for a new process after `change`. */
  restarts: boolean;
  change: () => Promise<unknown>;
}

/**
 * Changes deployments, at most `maxUnavailable` at a time, and waits until each runs again. Stops at the first failure;
 * the rest is not changed. Returns whether all succeeded.
 */
export async function roll(items: readonly RollItem[], options: RollOptions): Promise<boolean> {
  const waiting = [...items];
  let failed = false;

  async function work(): Promise<void> {
    for (let item = waiting.shift(); item && !failed; item = waiting.shift()) {
      const step = await changeOne(item, options).catch(
        (error: unknown): RollStep => ({
          name: item!.name,
          outcome: "failed",
          reason: error instanceof Error ? error.message : String(error),
        }),
      );
      if (step.outcome === "failed") failed = true;
      options.onStep(step);
    }
  }

  await Promise.all(Array.from({ length: Math.min(options.maxUnavailable, items.length) }, work));
  return !failed;
}

async function changeOne(item: RollItem, options: RollOptions): Promise<RollStep> {
  const { name } = item;
  options.onStep({ name, outcome: "started" });
  await item.change();
  if (!item.restarts) return { name, outcome: "running" };
  const previous = new Set(item.before ? runningOf(item.before).map(processOf) : []);
  const deadlineMs = options.nowMs() + options.limitMs;
  for (;;) {
    const view = await options.read(name);
    const outcome = outcomeOf(view, previous);
    if (outcome) return { name, ...outcome };
    if (options.nowMs() >= deadlineMs)
      return { name, outcome: "failed", reason: "did not run again in time" };
    await options.pause();
  }
}

/** `undefined` while the outcome is open. */
function outcomeOf(
  view: DeploymentView,
  previous: ReadonlySet<string>,
): Pick<RollStep, "outcome" | "reason"> | undefined {
  if (!view.enabled) return { outcome: "running" };
  const current = currentStatuses(view);
  const broken = current.find(({ state }) => ["failed", "refused", "backoff"].includes(state));
  if (broken && !previous.has(processOf(broken)))
    return { outcome: "failed", reason: `${broken.state}: ${broken.last_error ?? "see its log"}` };
  const fresh = runningOf(view).filter((status) => !previous.has(processOf(status)));
  const done = fresh.length > 0 && fresh.length >= current.length;
  return done ? { outcome: "running" } : undefined;
}

type Status = DeploymentView["status"][number];

/** Statuses of the current term from present nodes; for a deployment only that of its owner. */
export function currentStatuses(view: DeploymentView): Status[] {
  return view.status.filter(
    ({ generation, address, past }) =>
      !past &&
      generation === view.generation &&
      (view.type === "daemon" || address === view.address),
  );
}

const runningOf = (view: DeploymentView): Status[] =>
  currentStatuses(view).filter(({ state }) => state === "running");

/** Identifies a process: another pid or start time is another process. */
const processOf = ({ address, pid, started_at, generation }: Status): string =>
  JSON.stringify([address, pid, started_at, generation]);
