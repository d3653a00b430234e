import assert from "node:assert";
import { setTimeout as wait } from "node:timers/promises";
import {
  type DeploymentsOf,
  deploymentsOf,
  runningStatuses,
  SLEEPER,
} from "@tenure/testing/fleet/deployments";
import { type RunningUnit, spawnUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { childrenOf } from "@tenure/testing/processes/children";
import { scratchDirectory } from "@tenure/testing/scratch";
import { createSeeded } from "@tenure/testing/seeded";
import { until } from "@tenure/testing/until";
import { type Instance, startFleet } from "./fleet.ts";
import type { Proof, ProofRun } from "./proof.ts";

const DEADLINE_MS = 120_000;
const SAMPLE_EVERY_MS = 20;
const ROWS = 6;

/** One process per deployment on a node, whatever becomes of its agent; and what a bad child does is seen. */
export const deploymentsChildren: Proof = {
  name: "deployments-children",
  summary:
    "kill -9 of the agent while children start: never two of one id, no orphan; bad children",
  async run({ size, seed, print }: ProofRun) {
    const fleet = await startFleet("memory");
    try {
      const instance = await fleet.startInstance();
      await killedWhileStarting(instance, { rounds: size === "full" ? 50 : 6, seed, print });
      await badChildren(instance, print);
    } finally {
      await fleet.stop();
    }
  },
};

async function killedWhileStarting(
  { url }: Instance,
  { rounds, seed, print }: { rounds: number; seed: number; print: ProofRun["print"] },
): Promise<void> {
  const random = createSeeded(seed).fraction;
  const dataDir = scratchDirectory("unit");
  const deployments = deploymentsOf(url);
  for (let n = 0; n < ROWS; n++) await deployments.create({ name: `row-${n}`, command: SLEEPER });
  const watch = watchTwins(dataDir);
  const alive: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const unit = spawnUnit({ name: "victim", urls: [url], dataDir });
    await until(() => childrenOf(dataDir).length > 0, {
      deadlineMs: DEADLINE_MS,
      everyMs: 5,
      what: `the first child of round ${round}`,
    });
    await wait(random() * 250);
    alive.push(childrenOf(dataDir).length);
    await unit.kill9();
    await until(() => childrenOf(dataDir).length === 0, {
      deadlineMs: DEADLINE_MS,
      what: `the children of round ${round} to end with their agent`,
    });
  }
  const unit = await startUnit({ name: "victim", urls: [url], dataDir });
  const allRun = () => {
    const children = childrenOf(dataDir);
    return children.length === ROWS && children.every(({ pids }) => pids.length === 1);
  };
  await until(allRun, { deadlineMs: DEADLINE_MS, what: "one process of each" });
  await unit.stop(DEADLINE_MS);
  assert.deepEqual(childrenOf(dataDir), [], "a stopped agent leaves nothing");
  const { samples, twins } = watch.stop();
  print(
    `${rounds} × kill -9 while children start (${Math.min(...alive)}–${Math.max(...alive)} of ${ROWS} alive then): ` +
      `${twins.length} twins in ${samples} looks, no orphan`,
  );
  assert.deepEqual(twins, []);
  for (const { id } of await deployments.list()) await deployments.change(id, { enabled: false });
}

/** Looks all the time; remembers every deployment that was seen with two processes. */
function watchTwins(dataDir: string) {
  const twins: { deploymentId: string; pids: number[] }[] = [];
  let samples = 0;
  const timer = setInterval(() => {
    samples += 1;
    // A process that is just being replaced by exec keeps its pid; two pids are two processes.
    twins.push(...childrenOf(dataDir).filter(({ pids }) => pids.length > 1));
  }, SAMPLE_EVERY_MS);
  return {
    stop() {
      clearInterval(timer);
      return { samples, twins };
    },
  };
}

async function badChildren({ url }: Instance, print: ProofRun["print"]): Promise<void> {
  const deployments = deploymentsOf(url);
  const unit = await startUnit({
    name: "nurse",
    urls: [url],
    env: { NODE_UNIT_STOP_GRACE_MS: "1000" },
  });
  await deployments.create({ name: "deaf", command: "trap '' TERM; while :; do sleep 1; done" });
  await deployments.create({ name: "parent", command: "sleep 1000 & sleep 1000 & wait" });
  await deployments.create({ name: "crashing", command: "echo boom >&2; exit 7" });
  await untilState(deployments, "deaf", "running");
  await untilState(deployments, "parent", "running");
  const crashed = await untilState(deployments, "crashing", "backoff");
  assert.equal(crashed.status[0]?.exit_code, 7);
  const why = await deployments.why("crashing");
  print(`a child that ends at once: backoff, exit code 7; why: ${why}`);

  for (const name of ["deaf", "parent"]) {
    const view = await deployments.read(name);
    await deployments.change(view.id, { enabled: false });
    await until(() => !isThere(unit, view.id), {
      deadlineMs: DEADLINE_MS,
      what: `${name} to be gone with all its processes`,
    });
    print(
      `a child that ${name === "deaf" ? "ignores SIGTERM: killed after its grace" : "has children: all of them ended"}`,
    );
  }
  await unit.stop(DEADLINE_MS);
  assert.deepEqual(childrenOf(unit.dataDir), []);
}

const isThere = ({ dataDir }: RunningUnit, id: string): boolean =>
  childrenOf(dataDir).some(({ deploymentId }) => deploymentId === id);

async function untilState(deployments: DeploymentsOf, name: string, state: string) {
  const reached = async () => {
    const view = await deployments.read(name);
    const isReached =
      state === "running"
        ? runningStatuses(view).length === 1
        : view.status.some((status) => status.state === state);
    return isReached && view;
  };
  return until(reached, { deadlineMs: DEADLINE_MS, everyMs: 50, what: `${name} to be ${state}` });
}
