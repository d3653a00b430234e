import { selects } from "@tenure/protocol";
import type { Timeline } from "../timeline.ts";
import type { Arbiter, OwnerWrite } from "./arbiter.ts";
import type { Copy } from "./children.ts";
import type { Instance } from "./instance.ts";
import type { NodeUnit, Witness } from "./node-unit.ts";
import type { Settings } from "./settings.ts";

export interface Checks extends Witness {
  owner(write: OwnerWrite): void;
  /** What must never be and was, in the order it was seen. */
  readonly violations: readonly string[];
  /** How often what the run is about really happened. */
  readonly reached: Readonly<Reached>;
}

export interface Reached {
  claims: number;
  releases: number;
  handovers: number;
  overlaps: number;
  overlapMsMax: number;
}

export interface Scene {
  timeline: Timeline;
  settings: Settings;
  arbiter: Arbiter;
  instances: readonly Instance[];
  nodes: readonly NodeUnit[];
  evicted: ReadonlySet<string>;
}

/**
 * Looks at every write of an owner and at every copy that begins to run, and knows what no statement knows: which
 * process really is alive and connected. It shares no code with what it checks.
 */
export function createChecks(scene: () => Scene): Checks {
  const violations: string[] = [];
  const reached: Reached = { claims: 0, releases: 0, handovers: 0, overlaps: 0, overlapMsMax: 0 };
  const highest = new Map<string, number>();
  const toldOwner = new Map<string, string>();
  const claimsInPass = new Map<string, number>();
  const copies = new Map<string, Map<string, { sinceMs: number; copy: Copy }>>();

  function violated(invariant: string, what: string): void {
    const { timeline } = scene();
    violations.push(`${invariant} at ${timeline.monotonicMs().toFixed(0)} ms: ${what}`);
  }

  function checkTerm({ before, after }: OwnerWrite): void {
    if (after.generation <= before.generation)
      violated("I1", `${after.id} changed hands and stayed at generation ${after.generation}`);
    if (after.generation <= (highest.get(after.id) ?? 0))
      violated("I1", `${after.id} went back to generation ${after.generation}`);
    highest.set(after.id, after.generation);
    if (before.type !== "deployment")
      violated("I3", `${before.id} of type ${before.type} was given to "${after.address}"`);
    if (!before.enabled) violated("I1", `${before.id} is disabled and changed hands`);
  }

  function checkCaller({ kind, by, before }: OwnerWrite): void {
    const { arbiter, nodes } = scene();
    const caller = nodes.find(({ spec }) => spec.address === by.address);
    const unit = arbiter.nodes.get(by.address);
    if (caller?.spec.claim_policy === "none")
      violated("I2", `${by.address} of policy none did a ${kind} of ${before.id}`);
    if (unit?.epoch !== by.epoch || !arbiter.nodes.isPresent(unit))
      violated("I1", `${by.address} did a ${kind} on a connection that is over`);
  }

  function checkClaim({ by, seen, before }: OwnerWrite): void {
    const { arbiter } = scene();
    const unit = arbiter.nodes.get(by.address);
    const isHandedOver = before.moving_to === by.address && before.move_state === "stopped";
    if (before.address !== "" && !isHandedOver)
      violated("I1", `${by.address} took ${before.id} from its owner ${before.address}`);
    if (seen?.generation !== before.generation)
      violated("I1", `${by.address} took ${before.id} by a term that was over`);
    if (unit?.draining) violated("I1", `${by.address} is draining and took ${before.id}`);
    if (!selects(before.selector, { address: by.address, labels: unit?.labels ?? {} }))
      violated("I1", `${by.address} took ${before.id}, which it may not run`);
    reached.claims += 1;
    if (isHandedOver) reached.handovers += 1;
  }

  function checkRelease({ by, before }: OwnerWrite): void {
    const { arbiter, instances, nodes, timeline } = scene();
    const owner = nodes.find(({ spec }) => spec.address === before.address);
    const unit = arbiter.nodes.get(before.address);
    const at = nodes.find(({ spec }) => spec.address === by.address)?.connection?.instanceId;
    const view = instances.find(({ id }) => id === at)?.view;
    if (unit && arbiter.nodes.isPresent(unit))
      violated("I1", `${before.id} was taken from ${before.address}, which is present`);
    if (owner && !owner.isFrozen && isHeard(owner, unit?.epoch))
      violated("I1", `${before.id} was taken from ${before.address}, which is connected`);
    const lostMs = unit && (unit.left_at ?? unit.presence_expires_at).getTime();
    if (lostMs !== undefined && lostMs + before.lost_after_ms > timeline.monotonicMs())
      violated("lost_after_ms", `${before.id} was taken before its time`);
    if (arbiter.nodes.brake().active) violated("brake", `${before.id} was released all the same`);
    if (view === "settling") violated("settling", `${before.id} was released by ${at}`);
    reached.releases += 1;
  }

  /** Its instance answered on this very connection a moment ago: nobody can have had a reason to think it gone. */
  function isHeard({ connection }: NodeUnit, epoch: number | undefined): boolean {
    const { timeline, settings } = scene();
    const silentMs = timeline.monotonicMs() - (connection?.contactMs ?? Number.NEGATIVE_INFINITY);
    return connection?.epoch === epoch && silentMs < settings.pingEveryMs;
  }

  /** A node that was stopped by its machine cannot stop its children: the design says so, and the fence is for it. */
  const isExcused = (address: string): boolean =>
    scene().nodes.some((node) => node.spec.address === address && wasFrozen(node));

  function wasFrozen(node: NodeUnit): boolean {
    const { timeline, settings } = scene();
    return node.isFrozen || timeline.monotonicMs() - node.thawedMs <= settings.stopGraceMs + 1_000;
  }

  function checkOverlap(a: Running, b: Running): void {
    const { settings, arbiter, timeline, evicted } = scene();
    const boundMs = settings.selfStopMs + settings.stopGraceMs;
    const overlapMs = timeline.monotonicMs() - Math.max(a.sinceMs, b.sinceMs);
    reached.overlaps += 1;
    if (isExcused(a.address) || isExcused(b.address) || evicted.has(a.copy.id)) return;
    reached.overlapMsMax = Math.max(reached.overlapMsMax, overlapMs);
    const patienceMs = arbiter.deployments.get(a.copy.id)?.lost_after_ms ?? 0;
    const allowedMs = patienceMs >= boundMs ? 0 : boundMs;
    if (overlapMs > allowedMs)
      violated(
        "overlap",
        `${a.copy.id} ran on ${a.address} and ${b.address} for ${overlapMs.toFixed(0)} ms`,
      );
  }

  interface Running {
    address: string;
    sinceMs: number;
    copy: Copy;
  }

  return {
    violations,
    reached,
    owner(write) {
      checkTerm(write);
      checkCaller(write);
      if (write.kind === "claim") checkClaim(write);
      else checkRelease(write);
    },
    passBegan: (address) => void claimsInPass.set(address, 0),
    claimed(address, { id, generation }) {
      const count = (claimsInPass.get(address) ?? 0) + 1;
      claimsInPass.set(address, count);
      if (count > 1) violated("one claim per pass", `${address} claimed ${count}`);
      const term = `${id}:${generation}`;
      const former = toldOwner.get(term) ?? address;
      if (former !== address) violated("I1", `${term} was given to ${former} and to ${address}`);
      toldOwner.set(term, address);
    },
    began(address, copy) {
      const here = copies.get(copy.id) ?? new Map<string, { sinceMs: number; copy: Copy }>();
      copies.set(copy.id, here);
      if (here.has(address)) violated("I3", `${copy.id} runs twice on ${address}`);
      here.set(address, { sinceMs: scene().timeline.monotonicMs(), copy });
    },
    ended(address, { id, type }) {
      const here = copies.get(id);
      const mine = here?.get(address);
      here?.delete(address);
      if (!mine || type === "daemon") return;
      for (const [other, { sinceMs, copy }] of here ?? [])
        checkOverlap({ address, ...mine }, { address: other, sinceMs, copy });
    },
  };
}
