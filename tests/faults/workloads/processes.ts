import { join } from "node:path";
import { FLEET_TOKEN } from "@tenure/testing/fleet/fleet-token";
import { call, withClient } from "@tenure/testing/fleet/nonce-fleet";
import type { RecordedEvent } from "@tenure/testing/history";
import { repositoryRoot } from "@tenure/testing/repository";
import { until } from "@tenure/testing/until";
import {
  checkProcesses,
  checkRunning,
  type DeployedRow,
  type Life,
  livesOf,
  type OwnerEntry,
} from "../checkers/processes.ts";
import { historyOf } from "../history-of.ts";
import type { Party, Scene, Workload } from "../workload.ts";
import { runCallers } from "./callers.ts";

const ROWS = 6;
const DAEMONS = 2;
const SELF_STOP_MS = 6_000;
const STOP_GRACE_MS = 1_000;
// The design's bound, and what a busy machine adds to a timer. A process that gets no processor at all is a frozen
// one, and of those nothing is promised.
const LATE_MS = 8_000;
const STRICT_MS = SELF_STOP_MS + STOP_GRACE_MS;
const BEAT_LATE_MS = 3_000;

interface ProcessStores {
  rows: DeployedRow[];
  owners: OwnerEntry[];
  /** Addresses by the node's name. */
  nodes: { name: string; address: string }[];
}

const homeOf = ({ directory, name }: Scene): string => join(directory, "nodes", name);

/** Node-units as `tenure node run` starts them, each with a disk of its own. */
export const unitParty = (role: string, count: number, env: Record<string, string>): Party => ({
  role,
  count,
  uses: ["hosts"],
  // Long enough that also what waits for its former owner is taken over.
  awayMaxMs: 22_000,
  // A frozen node runs on beside its successor until it thaws: the design says so.
  spared: ["freeze"],
  home: homeOf,
  readyLine: /is connected/,
  start: (scene) => ({
    command: process.execPath,
    args: [
      join(scene.buildRoot, "packages/cli/bin/tenure.js"),
      ...["node", "run", "--log-level", "warn", "--name", scene.name],
      ...["--url", scene.urls.join(","), "--data-dir", homeOf(scene)],
    ],
    env: {
      HOST_TOKEN: FLEET_TOKEN,
      NODE_UNIT_SCHEDULER_INTERVAL_MS: "1000",
      ENABLE_CUSTOM_COMMAND: "true",
      ...env,
    },
  }),
});

const unit = (role: string, count: number, policy: string): Party =>
  unitParty(role, count, {
    NODE_UNIT_CLAIM_POLICY: policy,
    NODE_UNIT_SELF_STOP_MS: String(SELF_STOP_MS),
    NODE_UNIT_STOP_GRACE_MS: String(STOP_GRACE_MS),
  });

/** I1, I2, I3 with real node-units: processes that say while they live which term they run in. */
export const processes: Workload = {
  name: "processes",
  promises: "I1, I2, I3",
  clients: 1,
  uses: [],
  survivesHotLoss: true,
  parties: [unit("unit", 3, "deployment_count"), unit("passive-unit", 1, "none")],
  async load(context) {
    const { scene, quiet } = context;
    await createRows(scene, quiet);
    // A change of what is to run, now and then: another process in the same term.
    await runCallers(context, 1, async (caller) => {
      await caller.pause(3_000, 8_000);
      const name = `process-${Math.floor(caller.random.between(0, ROWS))}`;
      const body = { env: { ROUND: String(Math.floor(caller.random.between(0, 1_000))) } };
      await call(caller.oneOf(scene.urls), `/deployments/${name}`, { method: "PATCH", body }).catch(
        () => {},
      );
    });
  },
  async settle({ scene, deadlineMs }) {
    const isSettled = async (): Promise<boolean> => {
      const problems = await problemsAtRest(scene);
      if (problems.length > 0) throw new Error(problems.join("; "));
      return true;
    };
    await until(isSettled, { deadlineMs, everyMs: 500, what: "everything to run where it should" });
  },
  hazards: {
    takeovers: ["unit.kill:12000"],
    restarts: ["unit.kill:500"],
    daemon_restarts: ["unit.kill:500"],
  },
  read,
  check(events: RecordedEvent[], stores: ProcessStores) {
    const passive = stores.nodes
      .filter(({ name }) => name.startsWith("passive-"))
      .map(({ address }) => address);
    return checkProcesses(livesOf(events, nodeOf), stores, {
      strictFromMs: STRICT_MS,
      overlapMaxMs: STRICT_MS + LATE_MS,
      passive,
    });
  },
};

async function createRows({ urls, directory }: Scene, quiet: AbortSignal): Promise<void> {
  const child = join(repositoryRoot, "tests/faults/children/child.js");
  const specs = [
    ...Array.from({ length: ROWS }, (_, index) => ({
      name: `process-${index}`,
      type: "deployment",
      // Every second one waits until the former owner must have stopped it.
      lost_after_ms: index % 2 === 0 ? 0 : STRICT_MS + LATE_MS,
    })),
    ...Array.from({ length: DAEMONS }, (_, index) => ({ name: `daemon-${index}`, type: "daemon" })),
  ];
  for (const [index, spec] of specs.entries()) {
    const body = { ...spec, command: process.execPath, args: [child, directory, "processes"] };
    const made = async () => {
      const answer = await call(urls[index % urls.length]!, "/deployments", { body });
      if (answer.status === 400) throw new Error(JSON.stringify(answer.body));
      return quiet.aborted || answer.status === 201 || answer.status === 409;
    };
    await until(made, { deadlineMs: 600_000, everyMs: 200, what: spec.name });
  }
}

/** `<run>/nodes/<name>/...` is where a node's children work. */
export const nodeOf = (directory: string): string =>
  /\/nodes\/([^/]+)\//.exec(`${directory}/`)?.[1] ?? "";

async function problemsAtRest(scene: Scene): Promise<string[]> {
  const { rows, nodes } = await read(scene);
  if (rows.length < ROWS + DAEMONS) return [`only ${rows.length} rows are there`];
  const names = new Map(nodes.map(({ name, address }) => [address, name]));
  const nowNs = Number(process.hrtime.bigint());
  const isAlive = ({ lastNs }: Life) => nowNs - lastNs < BEAT_LATE_MS * 1e6;
  const alive = livesOf(historyOf(scene), nodeOf).filter(isAlive);
  const owned = rows.map((row) => ({ ...row, owner: names.get(row.address) ?? row.address }));
  const units = processes.parties!.flatMap(({ role, count }) =>
    Array.from({ length: count }, (_, index) => `${role}-${index}`),
  );
  return checkRunning(alive, owned, units);
}

async function read({ postgresUri }: Scene): Promise<ProcessStores> {
  return withClient(postgresUri, async (client) => {
    const mine = "(deployment.name like 'process-%' or deployment.name like 'daemon-%')";
    const rows = async (text: string) => (await client.query(text)).rows;
    return {
      rows: await rows(
        `select id, type, address, generation::int, lost_after_ms from deployment where ${mine}`,
      ),
      owners: await rows(
        `select subject as id, details ->> 'address' as address
           from event join deployment on deployment.id::text = subject
          where event.event in ('deployment.claimed', 'deployment.moved') and ${mine}`,
      ),
      nodes: await rows("select name, address from node_unit"),
    };
  });
}
