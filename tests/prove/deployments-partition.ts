import assert from "node:assert";
import { type Beats, createBeats, overlapMs } from "@tenure/testing/fleet/beats";
import {
  type DeploymentsOf,
  deploymentsOf,
  runningStatuses,
} from "@tenure/testing/fleet/deployments";
import { type RunningUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { startProxy } from "@tenure/testing/processes/proxy";
import { until } from "@tenure/testing/until";
import { startFleet } from "./fleet.ts";
import type { Proof, ProofRun } from "./proof.ts";

// Heartbeats come every 5 s, so silence must be longer. The children end at once when told to: all of the grace is room
// for a machine that is slow.
const SELF_STOP_MS = 8_000;
const GRACE_MS = 10_000;
const PRESENCE_TTL_MS = 22_000;
const SAFE_MS = SELF_STOP_MS + GRACE_MS;
/** What a shared machine may be late by. Being late is not what is shown here; never stopping is. */
const LATE_MS = 20_000;
const DEADLINE_MS = 120_000;

const UNIT_ENV = {
  NODE_UNIT_SELF_STOP_MS: String(SELF_STOP_MS),
  NODE_UNIT_STOP_GRACE_MS: String(GRACE_MS),
};

/** A node that is cut off stops its deployments by itself; with a safe `lost_after_ms` two copies never overlap. */
export const deploymentsPartition: Proof = {
  name: "deployments-partition",
  summary: "a node cut off from the server, or with it from Postgres, stops what it runs in time",
  async run({ print }: ProofRun) {
    await Promise.all([nodeFromInstance(print), instanceFromPostgres(print)]);
  },
};

async function nodeFromInstance(print: ProofRun["print"]): Promise<void> {
  const fleet = await startFleet("redis");
  try {
    const instance = await fleet.startInstance();
    const proxy = await startProxy({ targetPort: Number(new URL(instance.url).port) });
    const deployments = deploymentsOf(instance.url);
    const beats = createBeats();
    const cut = await startUnit({
      name: "cut",
      urls: [`http://127.0.0.1:${proxy.port}`],
      env: UNIT_ENV,
    });
    await create(deployments, beats, { name: "eager", lost_after_ms: 0 });
    await create(deployments, beats, { name: "safe", lost_after_ms: SAFE_MS });
    await untilRunsOn(deployments, cut, ["eager", "safe"]);
    const heir = await startUnit({ name: "heir", urls: [instance.url], env: UNIT_ENV });

    const cutAtMs = Date.now();
    proxy.refuse();
    proxy.reset();
    await untilRunsOn(deployments, heir, ["eager", "safe"]);
    await cut.waitForLine(/node\.suspended/, DEADLINE_MS);
    await untilSilent(beats, ["eager", "safe"]);
    for (const name of ["eager", "safe"]) {
      const [former] = beats.terms(name);
      const stoppedMs = former!.lastMs - cutAtMs;
      const overlap = overlapMs(beats.terms(name));
      print(
        `node cut from its instance, lost_after_ms ${name === "safe" ? SAFE_MS : 0}: stopped after ${seconds(stoppedMs)} ` +
          `(limit ${seconds(SAFE_MS)}), overlap ${overlap > 0 ? seconds(overlap) : `none (${seconds(-overlap)} without)`}`,
      );
      assert(stoppedMs <= SAFE_MS + LATE_MS, `${name} stopped after ${stoppedMs} ms`);
      if (name === "safe") assert(overlap <= 0, `two copies for ${overlap} ms`);
      else assert(overlap <= SAFE_MS + LATE_MS, `two copies for ${overlap} ms`);
    }

    await proxy.heal();
    await cut.waitForLine(/node\.resumed/, DEADLINE_MS);
    const now = (await deployments.list()).map(({ address }) => address);
    assert.deepEqual(now, [heir.address, heir.address], "what was taken over stays");
    print("healed: the node is back and runs nothing of what was taken over");
    proxy.stop();
  } finally {
    await fleet.stop();
  }
}

/** The instance answers the node all the time, but nothing it says is in Postgres any more. */
async function instanceFromPostgres(print: ProofRun["print"]): Promise<void> {
  const fleet = await startFleet("redis");
  try {
    const { port } = fleet.postgres;
    const proxy = await startProxy({ targetPort: port });
    const uri = new URL(fleet.postgres.uri());
    uri.port = String(proxy.port);
    const env = {
      TENURE_SCHEDULER_PHASE2_NODE_SNAPSHOT_PRESENCE_TTL_SECONDS: String(PRESENCE_TTL_MS / 1_000),
    };
    const [cutInstance, instance] = await Promise.all([
      fleet.startInstance({ env: { ...env, TENURE_SERVER_POSTGRES_URI: uri.href } }),
      fleet.startInstance({ env }),
    ]);
    const deployments = deploymentsOf(instance.url);
    const beats = createBeats();
    const cut = await startUnit({ name: "cut", urls: [cutInstance.url], env: UNIT_ENV });
    await create(deployments, beats, { name: "eager", lost_after_ms: 0 });
    await untilRunsOn(deployments, cut, ["eager"]);
    const heir = await startUnit({ name: "heir", urls: [instance.url], env: UNIT_ENV });

    const cutAtMs = Date.now();
    proxy.blackHole("both");
    await cut.waitForLine(/node\.suspended/, DEADLINE_MS);
    const wasConnected = !/connection\.lost/.test(cut.stderr());
    await untilRunsOn(deployments, heir, ["eager"]);
    await untilSilent(beats, ["eager"]);
    const [former] = beats.terms("eager");
    const stoppedMs = former!.lastMs - cutAtMs;
    const overlap = overlapMs(beats.terms("eager"));
    print(
      `instance cut from Postgres (${wasConnected ? "it still answered the node" : "it had let the node go"}): ` +
        `stopped after ${seconds(stoppedMs)} (limit ${seconds(SAFE_MS)}), taken over ${seconds(-overlap)} later`,
    );
    assert(stoppedMs <= SAFE_MS + LATE_MS, `stopped after ${stoppedMs} ms`);
    // Presence outlives the limit of the node by 4 s, so nobody may take over before it has stopped.
    assert(overlap <= 0, `two copies for ${overlap} ms`);
    proxy.stop();
  } finally {
    await fleet.stop();
  }
}

const create = (
  deployments: DeploymentsOf,
  beats: Beats,
  { name, lost_after_ms }: { name: string; lost_after_ms: number },
) => deployments.create({ name, lost_after_ms, command: beats.command(name) });

async function untilRunsOn(
  deployments: DeploymentsOf,
  { address }: RunningUnit,
  names: readonly string[],
): Promise<void> {
  const isThere = async () => {
    const views = (await deployments.list()).filter(({ name }) => names.includes(name));
    return views.every((view) => view.address === address && runningStatuses(view).length === 1);
  };
  await until(isThere, { deadlineMs: DEADLINE_MS, everyMs: 50, what: `${names} to run elsewhere` });
}

/** Until the former term has written nothing for a second. */
async function untilSilent(beats: Beats, names: readonly string[]): Promise<void> {
  const isSilent = () =>
    names.every((name) => {
      const [former, newest] = beats.terms(name);
      return former && newest && newest.lastMs > former.lastMs + 1_000;
    });
  await until(isSilent, { deadlineMs: DEADLINE_MS, what: "the former copies to fall silent" });
}

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;
