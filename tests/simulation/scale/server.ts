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
import { bytesOf, writingMs } from "./list-parts.ts";
import {
  type Answered,
  type InstanceList,
  instanceLists,
  type ListKind,
  type NodeList,
} from "./lists.ts";
import { createQueue, type Queue } from "./queue.ts";
import type { Change, VersionedTable } from "./table.ts";
import type { Tally } from "./tally.ts";

/** A node, as far as its instance knows it. */
export interface Terminal {
  readonly address: string;
  readonly isAlive: boolean;
  wake(): void;
  heard(members: ReadonlyMap<string, Member>): void;
}

export interface ScaleServer {
  readonly instances: readonly Queue[];
  readonly postgres: Queue;
  /** Gives the node an instance. Returns its list there. */
  connect(member: Member, node: () => Terminal): NodeList;
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
  lists: ListKind;
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
  nodes: Map<string, () => Terminal>;
  list: InstanceList;
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
  const createList = instanceLists(options.lists, { table, costs, lost });
  let members = options.members;
  const instances = Array.from({ length: options.instances }, createInstance);
  const homes = new Map<string, Instance>();
  const latencyMs = () => chance.between(...costs.latencyMs);

  function createInstance(): Instance {
    const instance: Instance = {
      ...{ cpu: createQueue(timeline), nodes: new Map(), copyAt: table.head(), members },
      list: createList(),
      readCopy: oneAtATime(() => readCopy(instance)),
      readMembers: oneAtATime(() => readMembers(instance)),
      release: createReleaseFlight({
        owns: (address) => table.at(instance.copyAt).countOf(address) > 0,
        run: (_: Terminal, addresses) => free(instance, addresses),
      }),
    };
    instance.list.add(lastChanges(table.changes(0, table.head())), table.head());
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

  async function list<A>(node: Terminal, write: (bytesMax: number) => Answered<A>): Promise<A> {
    const { cpu } = homes.get(node.address)!;
    let answered: Answered<A> | undefined;
    tally.lists += 1;
    tally.bytes += 2 * costs.frameBytes;
    await call(node, {
      cpuMs() {
        answered = write(shareOf(cpu));
        const { parts, more } = answered;
        tally.listRows += parts.rows;
        tally.listFree += parts.free;
        tally.listOwners += parts.owners;
        tally.cut += more ? 1 : 0;
        tally.bytes += bytesOf(parts, costs);
        return writingMs(parts, costs);
      },
      answer() {},
    });
    return answered!.answer;
  }

  /** As in the server's `list-pace.ts`. */
  function shareOf({ length }: Queue): number {
    const [min, max] = costs.answerBytes;
    return Math.min(max, Math.max(min, costs.sharedBytes / length));
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
    const changes = lastChanges(table.changes(from, to));
    await postgres.work(costs.copyLookMs + changes.length * costs.readRowMs);
    const isFree = changes.some(
      (change) => change.before?.address === "" || change.after.address === "",
    );
    await instance.cpu.work(changes.length * costs.copyRowMs + (isFree ? costs.oldestMs : 0));
    instance.list.add(changes, to);
    instance.copyAt = to;
    void tell(instance, whomToWake(instance, { from, to }));
  }

  /** As the server's `wakeFor`: everybody for a row that is free, else those who had it or have it. */
  function whomToWake(
    { nodes }: Instance,
    { from, to }: { from: number; to: number },
  ): Iterable<() => Terminal> {
    const changes = table.changes(from, to);
    if (planted.claimsWakeEverybody || changes.some(({ after }) => after.address === ""))
      return nodes.values();
    const named = new Set(changes.flatMap(({ before, after }) => [before?.address, after.address]));
    return [...named].flatMap((address) => nodes.get(address ?? "") ?? []);
  }

  async function tell({ cpu }: Instance, told: Iterable<() => Terminal>): Promise<void> {
    const here = [...told];
    if (here.length === 0) return;
    tally.tells += here.length;
    tally.bytes += here.length * costs.frameBytes;
    await cpu.work(here.length * costs.tellMs);
    for (const node of here) timeline.after(latencyMs(), () => node().isAlive && node().wake());
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
        node().heard(now);
        if (node().isAlive) node().wake();
      });
  }

  return {
    ...{ postgres, claim, release },
    instances: instances.map(({ cpu }) => cpu),
    connect(member, node) {
      const instance = instances[homes.size % instances.length]!;
      homes.set(member.address, instance);
      instance.nodes.set(member.address, node);
      return instance.list.listOf(member, (write) => list(node(), write));
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

/** Of each row from its first state to its last, as a refresh of an instance sees it. */
function lastChanges(changes: readonly Change[]): Change[] {
  const byId = new Map<string, Change>();
  for (const change of changes) {
    const { before } = byId.get(change.id) ?? change;
    byId.set(change.id, { ...change, before });
  }
  return [...byId.values()];
}

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
