import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { call, withClient } from "@tenure/testing/fleet/nonce-fleet";
import type { HistoryRecorder, RecordedEvent } from "@tenure/testing/history";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { operationsOf } from "../checkers/operations.ts";
import type { Dimension, OwnFault } from "../dimension.ts";
import { historyOf } from "../history-of.ts";
import type { LoadContext, Workload } from "../workload.ts";
import { runCallers } from "../workloads/callers.ts";
import type { World } from "../world.ts";
import {
  type Allocation,
  checkSteady,
  historyIn,
  recordMet,
  recordProblem,
  takeNumber,
  urlsOf,
} from "./steady-fleet.ts";

const NAME = "pooled";
const SIGNERS = ["pooled-0", "pooled-1", "pooled-2"];
const CALLERS = 4;
/** Numbers that only the lost history has. */
const LOST = 5;
/** Beyond the highest number that is known: an answer may have been lost with the history. */
const MARGIN = 100;

const HAZARDS = {
  promotions: ["store.promote"],
  restores: ["store.restore"],
  refusals: ["store.promote", "store.restore"],
  confirmations: ["store.promote", "store.restore"],
};

const pooled: Workload = {
  name: NAME,
  promises: "I9 behind a pooler, and after Postgres lost commits that were answered",
  clients: 1,
  uses: ["hosts"],
  survivesHotLoss: true,
  load,
  async settle() {}, // every fault waits until numbers are handed out again
  hazards: HAZARDS,
  async read() {},
  check(events: RecordedEvent[]) {
    const found = checkSteady(events, Object.keys(HAZARDS));
    delete found.reached.jobs;
    return { ...found, violations: [...found.violations, ...unconfirmedIn(events)] };
  },
};

const fault = (name: "promote" | "restore"): OwnFault => ({
  card: { role: "store", fault: name, count: 1, lastsMs: [8_000, 8_000] },
  act: (world) => loseHistory(world, name),
});

export const poolers: Dimension = {
  name: "poolers",
  summary:
    "PgBouncer before Postgres, pooling by transaction and by session; a lagging standby promoted behind it, a restored copy of its files",
  workloads: [pooled],
  // No crash of Postgres beside them: one thing at a time is done to its files.
  faults: ["store.*", "instance.kill"],
  ownFaults: [fault("promote"), fault("restore")],
  pace: { gapMs: [1_000, 2_000] },
  seconds: 30,
  world: { poolers: ["transaction", "session"] },
};

async function load(context: LoadContext): Promise<void> {
  const { scene, history } = context;
  await runCallers(context, CALLERS, async (caller) => {
    const url = caller.oneOf(scene.urls);
    await takeNumber(history, { url, signer: caller.oneOf(SIGNERS), process: caller.name }).catch(
      () => caller.pause(50, 200),
    );
    await caller.pause(5, 60);
  });
}

/**
 * Postgres comes back without its last numbers: as a promoted standby (another timeline) or as a copy of its files (the
 * same one). No instance may hand out a number then until an operator has raised the signers and confirmed.
 */
async function loseHistory(world: World, kind: "promote" | "restore"): Promise<void> {
  const history = historyIn(world, NAME);
  await takeEverywhere(world, history);
  const copy = join(scratchDirectory("copy"), "data");
  const data = await withClient(world.postgres.uri(), async (client) => {
    return (await client.query("show data_directory")).rows[0].data_directory as string;
  });
  await world.postgres.kill("immediate");
  await promisify(execFile)("cp", ["-a", data, copy]);
  await world.postgres.start();
  for (let n = 0; n < LOST; n++) await takeEverywhere(world, history);

  await world.postgres.kill("immediate");
  record(history, "lost", { kind });
  rmSync(data, { recursive: true });
  await promisify(execFile)("cp", ["-a", copy, data]);
  if (kind === "promote") writeFileSync(join(data, "standby.signal"), "");
  await world.postgres.start();
  if (kind === "promote")
    await withClient(world.postgres.uri(), (client) => client.query("select pg_promote(true, 30)"));
  await expectRefusals(world, history, kind);

  await raiseAndConfirm(world, history);
  await takeEverywhere(world, history).catch((error: Error) =>
    recordProblem(history, `after ${kind} and its confirmation: ${error.message}`),
  );
  recordMet(history, kind === "promote" ? "promotions" : "restores");
}

const record = (history: HistoryRecorder, f: string, value: unknown): void =>
  history.record({ process: "nemesis", type: "info", f, value });

/** One number of every signer at every instance. */
async function takeEverywhere(world: World, history: HistoryRecorder): Promise<void> {
  for (const url of urlsOf(world))
    for (const signer of SIGNERS) {
      const take = async () => {
        await takeNumber(history, { url, signer, process: `probe/${randomUUID()}` });
        return true;
      };
      await until(take, { deadlineMs: 40_000, everyMs: 200, what: `a number of ${signer}` });
    }
}

async function expectRefusals(world: World, history: HistoryRecorder, kind: string): Promise<void> {
  for (const [index, url] of urlsOf(world).entries()) {
    const isRefused = async () => {
      const body = { request_id: randomUUID() };
      const answer = await call(url, `/signers/${SIGNERS[0]}/nonces`, { body, timeoutMs: 8_000 });
      if (answer.status === 200) return "handed out";
      const { code, details } = answer.body.error;
      return code === "DEPENDENCY_DOWN" && details?.reason === "timeline" && "refused";
    };
    const outcome = await until(isRefused, {
      deadlineMs: 30_000,
      everyMs: 200,
      what: "a refusal",
    }).catch((error: Error) => error.message);
    if (outcome === "refused") recordMet(history, "refusals");
    else
      recordProblem(history, `after ${kind}, instance ${index}: ${outcome} before a confirmation`);
    const isShown = async () => (await call(url, "/cluster")).body.timeline_confirmed === false;
    await until(isShown, {
      deadlineMs: 20_000,
      everyMs: 200,
      what: "an unconfirmed timeline in /cluster",
    }).catch((error: Error) =>
      recordProblem(history, `after ${kind}, instance ${index}: ${error.message}`),
    );
  }
}

/** As docs/nonces.md tells an operator: every signer above everything that was handed out, then the confirmation. */
async function raiseAndConfirm(world: World, history: HistoryRecorder): Promise<void> {
  const [url = ""] = urlsOf(world);
  const known = operationsOf<unknown, Allocation>(
    historyOf(world.sceneOf(pooled, "nemesis")),
    "allocate",
  ).filter(({ type }) => type === "ok");
  for (const signer of SIGNERS) {
    const numbers = known.filter(({ answered }) => answered.signer === signer);
    const next_nonce = Math.max(0, ...numbers.map(({ answered }) => answered.nonce)) + MARGIN;
    const raised = async () => {
      const answer = await call(url, `/signers/${signer}`, { method: "PUT", body: { next_nonce } });
      if (answer.status !== 200) throw new Error(JSON.stringify(answer.body));
      return true;
    };
    await until(raised, { deadlineMs: 20_000, everyMs: 300, what: `a raise of ${signer}` }).catch(
      (error: Error) => recordProblem(history, error.message),
    );
  }
  record(history, "confirm", null);
  const { status } = await call(url, "/cluster/confirm-timeline", { body: {} });
  if (status === 200) recordMet(history, "confirmations");
  else recordProblem(history, `the timeline cannot be confirmed: ${status}`);
}

/** Numbers that were asked for after the history was lost and answered before an operator confirmed. */
function unconfirmedIn(events: RecordedEvent[]): string[] {
  const marks = events.filter(({ f }) => f === "lost" || f === "confirm");
  const windows = marks.flatMap(({ f, time: fromNs }, index) =>
    f === "lost" ? [{ fromNs, toNs: marks[index + 1]?.time ?? Number.POSITIVE_INFINITY }] : [],
  );
  const taken = operationsOf<unknown, Allocation>(events, "allocate").filter(
    ({ type, startNs, endNs }) =>
      type === "ok" && windows.some(({ fromNs, toNs }) => startNs > fromNs && endNs < toNs),
  );
  if (taken.length === 0) return [];
  const numbers = taken.slice(0, 5).map(({ answered }) => `${answered.signer} ${answered.nonce}`);
  return [`${taken.length} numbers were handed out before a confirmation: ${numbers.join(", ")}`];
}
