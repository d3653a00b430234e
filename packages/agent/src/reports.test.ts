import { type DeploymentReport, TenureError } from "@tenure/protocol";
import { expect, test } from "vitest";
import { createManualClock } from "../../sdk/testing/manual-clock.ts";
import { createReports } from "./reports.ts";

const ID = "00000000-0000-4000-8000-000000000001";
const report = (changes: Partial<DeploymentReport> = {}): DeploymentReport => ({
  deployment_id: ID,
  generation: 1,
  state: "running",
  ...changes,
});
const down = new TenureError("DEPENDENCY_DOWN", { dependency: "the server", reason: "down" });
const fenced = new TenureError("FENCED", { resource: "deployment", fencing_token: 1 });
const nextTick = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Reports to a server whose answers a test gives. */
function createServer() {
  const clock = createManualClock();
  const calls: { report: DeploymentReport; answer: (error?: unknown) => Promise<void> }[] = [];
  const refused: DeploymentReport[] = [];
  const reports = createReports({
    clock,
    send: (sent) =>
      new Promise<void>((resolve, reject) => {
        const answer = async (error?: unknown) => {
          if (error) reject(error);
          else resolve();
          await nextTick();
        };
        calls.push({ report: sent, answer });
      }),
    refused: (one) => refused.push(one),
  });
  return { clock, calls, refused, reports };
}

test("only the newest report waits for the one in flight, with the fields of those it replaced", async () => {
  const { reports, calls } = createServer();
  reports.put(report({ state: "installing" }));
  reports.put(report({ state: "starting", restarts: 2 }));
  reports.put(report({ state: "running", pid: 7 }));
  expect(calls).toHaveLength(1);
  await calls[0]!.answer();
  expect(calls.map(({ report: { state } }) => state)).toEqual(["installing", "running"]);
  expect(calls[1]!.report).toMatchObject({ pid: 7, restarts: 2 });
});

test("a report has no fields of a former generation", async () => {
  const { reports, calls } = createServer();
  reports.put(report({ state: "installing" }));
  reports.put(report({ pid: 7 }));
  reports.put(report({ generation: 2, state: "starting" }));
  await calls[0]!.answer();
  expect(calls[1]!.report).toEqual(report({ generation: 2, state: "starting" }));
});

test("a report that was not acknowledged is retried later, and at once after a reconnect", async () => {
  const { reports, calls, clock } = createServer();
  reports.put(report());
  await calls[0]!.answer(down);
  expect(calls).toHaveLength(1);
  clock.advance(1_000);
  expect(calls).toHaveLength(2);
  await calls[1]!.answer(down);
  reports.connected();
  expect(calls).toHaveLength(3);
  await calls[2]!.answer();
  clock.advance(60_000);
  expect(calls).toHaveLength(3);
});

test("a report of a generation that is over is dropped, and the caller is notified", async () => {
  const { reports, calls, clock, refused } = createServer();
  reports.put(report());
  await calls[0]!.answer(fenced);
  clock.advance(60_000);
  expect(calls).toHaveLength(1);
  expect(refused).toEqual([report()]);
});

test("a refusal of an old report does not drop the newer one", async () => {
  const { reports, calls } = createServer();
  reports.put(report());
  reports.put(report({ generation: 2 }));
  await calls[0]!.answer(fenced);
  expect(calls[1]!.report.generation).toBe(2);
});

test("flush waits for all acknowledgements, up to its limit", async () => {
  const { reports, calls, clock } = createServer();
  reports.put(report());
  const flushed = reports.flush(500);
  await calls[0]!.answer();
  expect(await flushed).toBe(true);
  reports.put(report({ state: "stopped" }));
  const late = reports.flush(500);
  clock.advance(500);
  expect(await late).toBe(false);
  expect(calls).toHaveLength(2);
});
