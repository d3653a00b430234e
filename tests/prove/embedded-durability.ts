import assert from "node:assert";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { READY_LINE, startServer } from "@tenure/testing/fleet/running-server";
import { type RunningProcess, startProcess, startTenure } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { createSeeded, type Seeded } from "@tenure/testing/seeded";
import { until } from "@tenure/testing/until";
import { embeddedStoreFile } from "./built-server.ts";
import type { Proof, ProofRun } from "./proof.ts";

export const embeddedDurability: Proof = {
  name: "embedded-durability",
  summary: "kill -9 on the embedded store at any moment: every acknowledged write is there after",
  async run({ size, seed, print }) {
    const dataDir = scratchDirectory("durability");
    const random = createSeeded(seed);
    await writesSurvive({ dataDir, random, print, kills: size === "full" ? 20 : 3 });
    await startsSurvive({ dataDir, random, print, kills: size === "full" ? 20 : 2 });
  },
};

interface Trial {
  dataDir: string;
  kills: number;
  random: Seeded;
  print: ProofRun["print"];
}

/** Every third kill falls into the opening of the store: the making of it, or a recovery. */
async function writesSurvive({ dataDir, kills, random, print }: Trial): Promise<void> {
  const acknowledged = new Map<number, number>();
  for (let round = 1; round <= kills; round++) {
    const isWatched = round === kills;
    const writer = isWatched ? startToldWriter(dataDir, round) : startWriter(dataDir, round);
    const duringOpening = round % 3 === 1;
    const momentMs = random.between(0, duringOpening ? 2_000 : 1_000);
    if (!duringOpening || isWatched) checkFound(await foundBy(writer), acknowledged);
    if (isWatched) print(await syncsEveryCommit(writer));
    if (isWatched) print(await keepsOthersOut(writer, dataDir));
    await wait(momentMs);
    await writer.kill9();
    acknowledged.set(round, lastAcknowledged(writer));
  }
  const checker = startWriter(dataDir, kills + 1);
  checkFound(await foundBy(checker), acknowledged);
  await checker.kill9();
  const counts = [...acknowledged.values()];
  const total = counts.reduce((sum, count) => sum + count, 0);
  const early = counts.filter((count) => count === 0).length;
  print(`${kills} kills of a writer, ${early} before its first write: ${total} writes, all there`);
}

interface FoundRound {
  round: number;
  count: number;
  last: number;
  copies: number;
}

function checkFound(found: FoundRound[], acknowledged: ReadonlyMap<number, number>): void {
  for (const [round, last] of acknowledged) {
    const rows = found.find((candidate) => candidate.round === round);
    const there = rows?.last ?? 0;
    assert(there >= last, `round ${round}: ${last} were acknowledged, ${there} are there`);
    if (!rows) continue;
    assert.equal(rows.count, rows.last, `round ${round} has gaps`);
    assert.equal(rows.copies, Math.floor(rows.last / 5), `round ${round} has half a transaction`);
  }
}

function startWriter(dataDir: string, round: number): RunningProcess {
  return startProgram({ dataDir, round, inFlight: 4 });
}

/** One that says when something was synced to disk; one write at a time, so that each has its own. */
function startToldWriter(dataDir: string, round: number): RunningProcess {
  const nodeArgs = ["--import", join(repositoryRoot, "tests/prove/tell-syncs.js")];
  return startProgram({ dataDir, round, inFlight: 1, nodeArgs });
}

function startProgram(options: {
  dataDir: string;
  round: number;
  inFlight: number;
  nodeArgs?: string[];
}): RunningProcess {
  const { dataDir, round, inFlight, nodeArgs = [] } = options;
  const program = join(repositoryRoot, "tests/prove/embedded-writer.js");
  const args = [...nodeArgs, program, embeddedStoreFile, dataDir, `${round}`, `${inFlight}`];
  return startProcess({ command: process.execPath, args });
}

async function foundBy(writer: RunningProcess): Promise<FoundRound[]> {
  const [, found = ""] = await writer.waitForLine(/^found (.*)$/, 60_000);
  return JSON.parse(found) as FoundRound[];
}

function lastAcknowledged(writer: RunningProcess): number {
  return Number([...writer.stdout().matchAll(/^acknowledged (\d+)$/gm)].at(-1)?.[1] ?? 0);
}

/** kill -9 spares what the kernel has; only a sync before the answer covers the loss of power. */
async function syncsEveryCommit(writer: RunningProcess): Promise<string> {
  await writer.waitForLine(/^acknowledged 100$/, 60_000);
  const [, writing = ""] = writer.stdout().split(/^found .*$/m);
  const turns = writing.split(/^acknowledged \d+$/m).slice(0, 100);
  const unsynced = turns.filter((turn) => !turn.includes("synced")).length;
  assert.equal(unsynced, 0, `${unsynced} of 100 writes were acknowledged without a sync before`);
  return "100 of 100 writes were synced to disk before they were acknowledged";
}

async function keepsOthersOut(writer: RunningProcess, dataDir: string): Promise<string> {
  const second = startTenure(["server", "--port", "0"], { dataDir });
  const { code } = await second.exited;
  assert.equal(code, 1);
  const sentence = new RegExp(
    `^[^\\n]*is in use by another server \\(pid ${writer.pid}\\)[^\\n]*$`,
  );
  assert.match(second.stderr(), sentence);
  const atRefusal = lastAcknowledged(writer);
  await until(() => lastAcknowledged(writer) > atRefusal, { what: "further writes" });
  return `a second server on the same directory: "${second.stderr()}"; the first went on`;
}

/** The server itself: every start that said it was ready has left its event. */
async function startsSurvive({ dataDir, kills, random, print }: Trial): Promise<void> {
  const ready: string[] = [];
  for (let round = 1; round <= kills; round++) {
    const instanceId = `round-${round}`;
    const server = startTenure(["server", "--port", "0"], { dataDir, env: named(instanceId) });
    const duringStart = round % 2 === 1;
    const momentMs = random.between(0, 1_500);
    if (!duringStart) await server.waitForLine(READY_LINE, 60_000);
    await wait(momentMs);
    await server.kill9();
    if (
      server
        .stdout()
        .split("\n")
        .some((line) => READY_LINE.test(line))
    )
      ready.push(instanceId);
  }
  const server = await startServer({ dataDir, env: named("last") });
  const { body } = await server.get("/api/v1/events?event=instance.started&limit=500");
  const started = (body as { items: { subject: string }[] }).items.map(({ subject }) => subject);
  await server.kill9();
  for (const instanceId of [...ready, "last"]) {
    assert(started.includes(instanceId), `the event of ${instanceId} is lost`);
  }
  print(`${kills} kills of a server, ${ready.length} of them when it was ready: no event lost`);
}

const named = (instanceId: string): Record<string, string> => ({
  TENURE_SCHEDULER_PHASE2_INSTANCE_ID: instanceId,
});
