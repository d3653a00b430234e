import type { DeploymentView } from "@tenure/protocol";

/** Progress of one deployment of a draining node. */
export type DrainStep =
  | { kind: "moved"; name: string; to: string; gapMs: number | undefined }
  | { kind: "gone"; name: string }
  /** Nothing has moved for `STUCK_MS`; `why` explains it. */
  | { kind: "stuck"; name: string; why: string };

export interface DrainOptions {
  address: string;
  /** Deployments of the node before the drain. */
  before: readonly DeploymentView[];
  /** Deployments that the node still owns. */
  owned: () => Promise<readonly DeploymentView[]>;
  /** `undefined` if it was deleted. */
  read: (id: string) => Promise<DeploymentView | undefined>;
  why: (id: string) => Promise<string>;
  pause: () => Promise<void>;
  nowMs: () => number;
  onStep: (step: DrainStep) => void;
}

/** Longer than a usual stop and install; then the reason is shown. */
const STUCK_MS = 20_000;

/** Follows a drain until the node owns nothing and all its deployments run on other nodes. */
export async function followDrain(options: DrainOptions): Promise<DrainStep[]> {
  const done: DrainStep[] = [];
  const open = new Map(options.before.map((view) => [view.id, view]));
  let movedAtMs = options.nowMs();
  for (;;) {
    const owned = await options.owned();
    for (const view of owned) open.set(view.id, view);
    const still = new Set(owned.map(({ id }) => id));
    for (const [id, { name }] of [...open]) {
      if (still.has(id)) continue;
      const step = stepOf(name, await options.read(id), options.address);
      if (!step) continue;
      open.delete(id);
      done.push(step);
      movedAtMs = options.nowMs();
      options.onStep(step);
    }
    if (open.size === 0) return done;
    if (options.nowMs() - movedAtMs >= STUCK_MS) {
      movedAtMs = options.nowMs();
      const [first] = open.values();
      if (first)
        options.onStep({ kind: "stuck", name: first.name, why: await options.why(first.id) });
    }
    await options.pause();
  }
}

/** `undefined` while no node runs it. */
function stepOf(
  name: string,
  view: DeploymentView | undefined,
  from: string,
): DrainStep | undefined {
  if (!view?.enabled) return { kind: "gone", name };
  const running = view.status.find(
    ({ address, state, generation }) =>
      address === view.address && state === "running" && generation === view.generation,
  );
  if (!running) return undefined;
  return { kind: "moved", name, to: view.address, gapMs: gapOf(view, from, running) };
}

/** Time between the previous owner's `stopped` and the new owner's `running`, by the database clock. */
function gapOf(
  view: DeploymentView,
  from: string,
  running: DeploymentView["status"][number],
): number | undefined {
  const stopped = view.status.find(({ address, state }) => address === from && state === "stopped");
  if (!stopped) return undefined;
  return Math.max(0, Date.parse(running.updated_at) - Date.parse(stopped.updated_at));
}
