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
  /** As it was before; `undefined` for a new one. */
  before: DeploymentView | undefined;
  /** Whether a new process must come. Else `change` alone is the work. */
  restarts: boolean;
  change: () => Promise<unknown>;
}

/**
 * Changes a set, never more than `maxUnavailable` at a time, each until it runs again. The first that does not
 * ends it: the rest stays as it was, and what failed can be looked at or rolled back. Answers whether all went well.
 */
export async function roll(items: readonly RollItem[], options: RollOptions): Promise<boolean> {
  const waiting = [...items];
  let failed = false;

  async function work(): Promise<void> {
    for (let item = waiting.shift(); item && !failed; item = waiting.shift()) {
      const step = await one(item, options).catch(
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

async function one(item: RollItem, options: RollOptions): Promise<RollStep> {
  const { name } = item;
  options.onStep({ name, outcome: "started" });
  await item.change();
  if (!item.restarts) return { name, outcome: "running" };
  const former = new Set(item.before ? runningOf(item.before).map(processOf) : []);
  const deadlineMs = options.nowMs() + options.limitMs;
  for (;;) {
    const view = await options.read(name);
    const verdict = judge(view, former);
    if (verdict) return { name, ...verdict };
    if (options.nowMs() >= deadlineMs)
      return { name, outcome: "failed", reason: "it did not run again in time" };
    await options.pause();
  }
}

/** `undefined` while it is still on its way. */
function judge(
  view: DeploymentView,
  former: ReadonlySet<string>,
): Pick<RollStep, "outcome" | "reason"> | undefined {
  if (!view.enabled) return { outcome: "running" };
  const current = currentStatuses(view);
  const broken = current.find(({ state }) => ["failed", "refused", "backoff"].includes(state));
  if (broken && !former.has(processOf(broken)))
    return { outcome: "failed", reason: `${broken.state}: ${broken.last_error ?? "see its log"}` };
  const fresh = runningOf(view).filter((status) => !former.has(processOf(status)));
  const done = fresh.length > 0 && fresh.length >= current.length;
  return done ? { outcome: "running" } : undefined;
}

type Status = DeploymentView["status"][number];

/** What the nodes say that run it now: of its term, of nodes that are there, and for a deployment only its owner. */
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

/** One process of it: another pid or another start is another process. */
const processOf = ({ address, pid, started_at, generation }: Status): string =>
  JSON.stringify([address, pid, started_at, generation]);
