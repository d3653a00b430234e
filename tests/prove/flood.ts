import assert from "node:assert";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import {
  type DeploymentsOf,
  deploymentsOf,
  runningStatuses,
  SLEEPER,
} from "@tenure/testing/fleet/deployments";
import { type RunningUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { storeSettings } from "@tenure/testing/fleet/running-server";
import { childrenOf } from "@tenure/testing/processes/children";
import { startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { startPostgres } from "@tenure/testing/stores/postgres";
import { until } from "@tenure/testing/until";
import { type AttackedServer, attackServer } from "../attacks/scene.ts";
import type { Proof, ProofRun } from "./proof.ts";

const DEADLINE_MS = 120_000;
const ROWS = 6;
const ASK_EVERY_MS = 50;
/** Far below what the flood took before it was bounded (5 GB); above what the limits of one tenant's payloads allow. */
const GROWTH_MB_MAX = 1_200;
/** Half of the answers. A machine ten times slower than a laptop meets it. */
const HALF_WITHIN_MS = 5_000;

interface Extent {
  ms: number;
  strangers: number;
}

/** One hostile node, one hostile session and strangers at once cost others time, and nothing else. */
export const flood: Proof = {
  name: "flood",
  summary:
    "a hostile node, a hostile session and 2,000 strangers for 60 s: health answers, deployments stay, memory is bounded",
  async run({ size, print }: ProofRun) {
    const extent =
      size === "full" ? { ms: 60_000, strangers: 2_000 } : { ms: 4_000, strangers: 200 };
    await runOn({}, extent, (line) => print(`embedded: ${line}`));
    if (size !== "full") return;
    const postgres = await startPostgres();
    try {
      const env = storeSettings({ postgresUri: postgres.uri() });
      await runOn(env, extent, (line) => print(`postgres: ${line}`));
    } finally {
      await postgres.discard();
    }
  },
};

async function runOn(
  env: Record<string, string>,
  extent: Extent,
  print: ProofRun["print"],
): Promise<void> {
  const server = await attackServer(
    [
      { name: "admin", role: "admin" },
      { name: "agent", role: "node" },
      { name: "hostile-node", role: "node" },
      { name: "hostile-session", role: "session" },
    ],
    { env },
  );
  const units: RunningUnit[] = [];
  try {
    for (const name of ["one", "two"])
      units.push(
        await startUnit({
          ...{ name, urls: [server.url] },
          env: { HOST_TOKEN: server.secretOf("agent") },
        }),
      );
    const deployments = deploymentsOf(server.url, server.secretOf("admin"));
    await startRows(deployments);
    const before = await snapshot(deployments, units);
    const quiet = await watch(server, () => wait(Math.min(extent.ms, 5_000)));
    print(`before: ${describe(quiet)}`);

    const during = await watch(server, () => runClients(server, { extent, before, print }));
    print(`flood:  ${describe(during)}`);
    const after = await snapshot(deployments, units);
    const changed = before.filter((row, index) => !isSame(row, after[index]));
    print(`deployments that were restarted or moved: ${changed.length} of ${before.length}`);
    print(`contact of the agents lost: ${units.map(lossesOf).join(" and ")} times`);

    assert.deepEqual(after, before);
    assert.deepEqual(during.failures, []);
    assert(rank(during.tookMs, 0.5) <= HALF_WITHIN_MS, "half of the health answers in time");
    const grewMb = during.peakMb - quiet.peakMb;
    assert(grewMb <= GROWTH_MB_MAX, `memory grew by ${grewMb.toFixed(0)} MB`);
    await stillWorks(deployments);
  } finally {
    await Promise.allSettled(units.map((unit) => unit.kill9()));
    await server.kill9();
  }
}

async function startRows(deployments: DeploymentsOf): Promise<void> {
  for (let n = 0; n < ROWS; n++) await deployments.create({ name: `row-${n}`, command: SLEEPER });
  const allRun = async () => (await deployments.list()).every(runsOnce);
  await until(allRun, { deadlineMs: DEADLINE_MS, what: "every deployment to run" });
}

const runsOnce = (view: Parameters<typeof runningStatuses>[0]): boolean =>
  runningStatuses(view).length === 1;

async function stillWorks(deployments: DeploymentsOf): Promise<void> {
  const { id } = await deployments.create({ name: "later", command: SLEEPER });
  const runs = async () => runsOnce(await deployments.read(id));
  await until(runs, { deadlineMs: DEADLINE_MS, what: "a deployment made after the flood" });
}

/** Where a deployment is, in which term, and as which process. */
interface Row {
  id: string;
  generation: number;
  address: string;
  pids: number[];
}

async function snapshot(deployments: DeploymentsOf, units: RunningUnit[]): Promise<Row[]> {
  const children = units.flatMap(({ dataDir }) => childrenOf(dataDir));
  const pidsOf = (id: string): number[] =>
    children.flatMap(({ deploymentId, pids }) => (deploymentId === id ? pids : []));
  const views = await deployments.list();
  return views
    .map(({ id, generation, address }) => ({ id, generation, address, pids: pidsOf(id) }))
    .sort((a, b) => (a.id < b.id ? -1 : 1));
}

const isSame = (a: Row, b: Row | undefined): boolean => JSON.stringify(a) === JSON.stringify(b);

const lossesOf = (unit: RunningUnit): number =>
  unit.stderr().split("connection.lost").length + unit.stdout().split("connection.lost").length - 2;

interface Watched {
  tookMs: number[];
  failures: string[];
  peakMb: number;
}

/** Asks for the health, which asks the stores, one question at a time while `work` goes on. */
async function watch(server: AttackedServer, work: () => Promise<unknown>): Promise<Watched> {
  const watched: Watched = { tookMs: [], failures: [], peakMb: 0 };
  let working = true;
  const done = work().finally(() => {
    working = false;
  });
  while (working) {
    const askedMs = performance.now();
    await server
      .health()
      .then(({ code, down }) => {
        if (code !== 200) watched.failures.push(`${code}: ${down.join(", ")}`);
      })
      .catch((error: unknown) => watched.failures.push(String(error)));
    watched.tookMs.push(performance.now() - askedMs);
    watched.peakMb = Math.max(watched.peakMb, server.rssMb());
    await wait(ASK_EVERY_MS);
  }
  await done;
  return watched;
}

const rank = (values: readonly number[], share: number): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length * share)] ?? 0;

function describe({ tookMs, failures, peakMb }: Watched): string {
  const [half, most] = [0.5, 0.99].map((share) => rank(tookMs, share).toFixed(0));
  const worst = Math.max(...tookMs).toFixed(0);
  return (
    `health p50 ${half} ms, p99 ${most} ms, slowest ${worst} ms, ${failures.length} of ${tookMs.length} not ready; ` +
    `resident at most ${peakMb.toFixed(0)} MB`
  );
}

/** The hostile clients, in a process of their own until their time is up. */
async function runClients(
  server: AttackedServer,
  { extent, before, print }: { extent: Extent; before: readonly Row[]; print: ProofRun["print"] },
): Promise<void> {
  const options = {
    ...{ url: server.url, ...extent },
    nodeToken: server.secretOf("hostile-node"),
    sessionToken: server.secretOf("hostile-session"),
    victims: [...new Set(before.map(({ address }) => address))],
    rows: before.map(({ id, generation }) => ({ id, generation })),
  };
  const file = join(repositoryRoot, "tests/prove/flood-clients.js");
  const args = [file, JSON.stringify(options)];
  const clients = startProcess({ command: process.execPath, args });
  try {
    const [line] = await clients.waitForLine(/^\{.*\}$/, extent.ms + DEADLINE_MS);
    const did = JSON.parse(line) as Record<string, number>;
    print(
      `${did.nodeFrames} frames of the node (${did.nodeAnswers} calls answered, ${did.nodeConnections} connections); ` +
        `${did.submits} submits of 200 kB (${did.accepted} accepted, ${did.refused} refused), ${did.sessions} sessions opened and dropped; ` +
        `strangers: ${did.strangersMost} at once, ${did.strangerConnections} connections`,
    );
    assert(did.strangersMost! >= extent.strangers / 4, "most of the strangers were there");
  } finally {
    await clients.kill9();
  }
}
