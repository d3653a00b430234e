import {
  type DeploymentTerm,
  type ListedDeployment,
  type Member,
  TenureError,
} from "@tenure/protocol";
import { createReleaseFlight } from "../../../packages/server/src/deployments/release-flight.ts";
import type { Chance } from "../chance.ts";
import type { Timeline } from "../timeline.ts";
import type { Costs } from "./costs.ts";
import { createQueue, type Queue } from "./queue.ts";
import type { VersionedTable } from "./table.ts";
import type { Tally } from "./tally.ts";

/** A node, as far as its instance knows it. */
export interface Terminal {
  readonly address: string;
  readonly isAlive: boolean;
  wake(): void;
  heard(members: ReadonlyMap<string, Member>): void;
}

/** Up to where a reader has read the list. */
export interface Reading {
  position: number;
  rows: number;
  more: boolean;
}

export interface ScaleServer {
  readonly instances: readonly Queue[];
  readonly postgres: Queue;
  readonly lost: ReadonlySet<string>;
  connect(node: Terminal): void;
  list(node: Terminal, from: number): Promise<Reading>;
  claim(node: Terminal, candidates: readonly DeploymentTerm[]): Promise<DeploymentTerm>;
  release(node: Terminal, addresses: readonly string[]): Promise<readonly DeploymentTerm[]>;
  /** Rows that appear at once, as an operator's script would make them. */
  add(rows: readonly ListedDeployment[]): void;
  /** The socket of a node closed, and nobody else has it. */
  left(node: Terminal): Promise<void>;
}

export interface ScaleServerOptions {
  timeline: Timeline;
  chance: Chance;
  table: VersionedTable;
  tally: Tally;
  costs: Costs;
  instances: number;
  members: ReadonlyMap<string, Member>;
  planted: Planted;
}

/** One protection off each: the checks of a small fleet must see it. */
export interface Planted {
  /** The arbiter believes whoever claims. */
  claimsAreBlind?: boolean;
  /** Whatever the metric says. */
  anybodyClaims?: boolean;
  claimsWakeEverybody?: boolean;
}

interface Instance {
  cpu: Queue;
  nodes: Map<string, Terminal>;
  /** How far its copy of the table is. */
  copyAt: number;
  members: ReadonlyMap<string, Member>;
  readCopy: () => Promise<void>;
  readMembers: () => Promise<void>;
  release: (node: Terminal, addresses: readonly string[]) => Promise<Freed | undefined>;
}

interface Freed {
  outcome: "released";
  released: DeploymentTerm[];
}

/** The limit of the agent's own calls. */
const CALL_LIMIT_MS = 4_000;

/**
 * Instances as queues of work before a table with a history. What is decided, who is told and what is read again is as
 * in the server; how long it takes is given by the costs.
 */
export function createScaleServer(options: ScaleServerOptions): ScaleServer {
  const { timeline, chance, table, tally, costs, planted } = options;
  const postgres = createQueue(timeline, costs.postgresWorkers);
  const lost = new Set<string>();
  let members = options.members;
  const instances = Array.from({ length: options.instances }, createInstance);
  const homes = new Map<string, Instance>();
  const latencyMs = () => chance.between(...costs.latencyMs);

  function createInstance(): Instance {
    const instance: Instance = {
      ...{ cpu: createQueue(timeline), nodes: new Map(), copyAt: table.head(), members },
      readCopy: oneAtATime(() => readCopy(instance)),
      readMembers: oneAtATime(() => readMembers(instance)),
      release: createReleaseFlight({
        owns: (address) => table.at(instance.copyAt).countOf(address) > 0,
        run: (_: Terminal, addresses) => free(instance, addresses),
      }),
    };
    return instance;
  }

  /** There, through the instance's queue, and back. After the limit the answer is worth nothing, though the work is done. */
  function call<T>(
    node: Terminal,
    work: { cpuMs: () => number; answer: (instance: Instance) => Promise<T> | T },
  ): Promise<T> {
    const instance = homes.get(node.address)!;
    return new Promise<T>((resolve, reject) => {
      const cancel = timeline.after(CALL_LIMIT_MS, () => {
        tally.late += 1;
        reject(new TenureError("DEPENDENCY_DOWN", { dependency: "the server", reason: "late" }));
      });
      void (async () => {
        await timeline.sleep(latencyMs());
        await instance.cpu.work(work.cpuMs);
        const outcome = await settled(() => work.answer(instance));
        await timeline.sleep(latencyMs());
        cancel();
        if (!node.isAlive) return;
        if ("error" in outcome) reject(outcome.error);
        else resolve(outcome.value);
      })();
    });
  }

  async function list(node: Terminal, from: number): Promise<Reading> {
    const instance = homes.get(node.address)!;
    let reading: Reading = { position: from, rows: 0, more: false };
    tally.lists += 1;
    tally.bytes += 2 * costs.frameBytes;
    await call(node, {
      cpuMs() {
        const to = instance.copyAt;
        const all = table.changedBetween(from, to);
        const rows = Math.min(all, costs.pieceRows);
        const more = all > rows;
        reading = { position: more ? table.positionAfter(from, rows) : to, rows, more };
        tally.listRows += rows;
        tally.bytes += rows * costs.rowBytes;
        return costs.listMs + rows * costs.listRowMs;
      },
      answer() {},
    });
    return reading;
  }

  function claim(node: Terminal, candidates: readonly DeploymentTerm[]): Promise<DeploymentTerm> {
    tally.bytes += 2 * costs.frameBytes + candidates.length * costs.candidateBytes;
    return call(node, {
      cpuMs: () => costs.callMs,
      async answer(instance) {
        await postgres.work(costs.claimMs);
        const free = candidates.find(isFree);
        if (!free || lost.has(node.address)) {
          tally.conflicts += 1;
          throw new TenureError("ERR_CLAIM_CONFLICT", { candidates: candidates.length });
        }
        tally.claims += 1;
        const { id, generation } = rewrite(free.id, node.address);
        changed();
        await instance.readCopy();
        return { id, generation };
      },
    });
  }

  function isFree({ id, generation }: DeploymentTerm): boolean {
    const row = table.get(id);
    return planted.claimsAreBlind === true || (row.address === "" && row.generation === generation);
  }

  function release(node: Terminal, addresses: readonly string[]) {
    tally.releases += 1;
    tally.bytes += 2 * costs.frameBytes + addresses.length * costs.addressBytes;
    return call(node, {
      cpuMs: () => costs.callMs,
      async answer(instance) {
        const freed = await instance.release(node, addresses);
        tally.bytes += (freed?.released.length ?? 0) * costs.candidateBytes;
        return freed?.released ?? [];
      },
    });
  }

  /** The statement, and a look at what it did. */
  async function free(instance: Instance, addresses: readonly string[]): Promise<Freed> {
    const { releaseMs, releaseAddressMs, releaseRowMs } = costs;
    const owned = () =>
      addresses
        .filter((address) => lost.has(address))
        .sort()
        .flatMap(table.ownedBy);
    const fixedMs = releaseMs + addresses.length * releaseAddressMs;
    await postgres.work(() => fixedMs + owned().length * releaseRowMs);
    const freed = owned().map(({ id }) => rewrite(id, ""));
    if (freed.length > 0) {
      changed();
      await instance.readCopy();
    }
    return {
      outcome: "released",
      released: freed.map(({ id, generation }) => ({ id, generation })),
    };
  }

  /** A new owner, or none, and a new term. */
  function rewrite(id: string, address: string): ListedDeployment {
    const { generation } = table.get(id);
    const updated_at = new Date(BEGINNING_MS + timeline.monotonicMs()).toISOString();
    return table.write(id, { address, generation: generation + 1, updated_at });
  }

  function changed(): void {
    for (const instance of instances) void instance.readCopy();
  }

  async function readCopy(instance: Instance): Promise<void> {
    const from = instance.copyAt;
    const to = table.head();
    const rows = table.changedBetween(from, to);
    await postgres.work(costs.copyLookMs + rows * costs.readRowMs);
    await instance.cpu.work(rows * costs.copyRowMs);
    instance.copyAt = to;
    void tell(instance, whomToWake(instance, { from, to }));
  }

  /** As the server's `wakeFor`: everybody for a row that is free, else those who had it or have it. */
  function whomToWake(
    { nodes }: Instance,
    { from, to }: { from: number; to: number },
  ): Iterable<Terminal> {
    const changes = table.changes(from, to);
    if (planted.claimsWakeEverybody || changes.some(({ after }) => after.address === ""))
      return nodes.values();
    const named = new Set(changes.flatMap(({ before, after }) => [before?.address, after.address]));
    return [...named].flatMap((address) => nodes.get(address ?? "") ?? []);
  }

  async function tell({ cpu }: Instance, told: Iterable<Terminal>): Promise<void> {
    const here = [...told];
    if (here.length === 0) return;
    tally.tells += here.length;
    tally.bytes += here.length * costs.frameBytes;
    await cpu.work(here.length * costs.tellMs);
    for (const node of here) timeline.after(latencyMs(), () => node.isAlive && node.wake());
  }

  async function readMembers(instance: Instance): Promise<void> {
    await postgres.work(costs.memberLookMs + members.size * costs.readRowMs);
    const now = members;
    await instance.cpu.work(now.size * costs.memberMs);
    const changes = instance.members.size - now.size;
    instance.members = now;
    if (changes === 0) return;
    const here = [...instance.nodes.values()];
    tally.hostEvents += here.length * changes;
    tally.bytes += here.length * changes * costs.hostEventBytes;
    await instance.cpu.work(here.length * changes * costs.hostEventMs);
    for (const node of here)
      timeline.after(latencyMs(), () => {
        node.heard(now);
        if (node.isAlive) node.wake();
      });
  }

  return {
    ...{ postgres, lost, list, claim, release },
    instances: instances.map(({ cpu }) => cpu),
    connect(node) {
      const instance = instances[homes.size % instances.length]!;
      homes.set(node.address, instance);
      instance.nodes.set(node.address, node);
    },
    add(rows) {
      for (const row of rows) table.insert(row);
      changed();
    },
    async left(node) {
      const instance = homes.get(node.address)!;
      instance.nodes.delete(node.address);
      await timeline.sleep(chance.between(...costs.closeMs));
      await instance.cpu.work(costs.callMs);
      await postgres.work(costs.memberLookMs);
      lost.add(node.address);
      const next = new Map(members);
      next.delete(node.address);
      members = next;
      for (const { readMembers: read } of instances) void read();
    },
  };
}

const BEGINNING_MS = Date.parse("2024-01-01T00:00:00.000Z");

/** Whoever asks while one runs waits for the next, and all who wait share it. */
function oneAtATime(run: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  return function again(): Promise<void> {
    if (!running) {
      running = run().then(() => {
        running = undefined;
      });
      return running;
    }
    next ??= running.then(() => {
      next = undefined;
      return again();
    });
    return next;
  };
}

async function settled<T>(act: () => Promise<T> | T): Promise<{ value: T } | { error: unknown }> {
  try {
    return { value: await act() };
  } catch (error) {
    return { error };
  }
}
