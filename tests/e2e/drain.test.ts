import { auditAddresses, runningStatuses, spreadOver } from "@tenure/testing/fleet/deployments";
import { startFakeRegistry } from "@tenure/testing/programs/fake-registry";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { DEADLINE_MS, startUnitScene, type UnitScene } from "./node-units.ts";

// Real processes on a busy machine: each start may take many times its second.
vi.setConfig({ testTimeout: 240_000 });

let scene: UnitScene;
beforeAll(async () => {
  scene = await startUnitScene();
});
afterEach(() => scene.clear());
afterAll(() => scene?.stop());

test("each deployment moves, with its gap, and the node is empty", async () => {
  const [drained, other] = await Promise.all([scene.start("a"), scene.start("b")]);
  await scene.createSleepers(6);
  const before = await scene.untilAllRun([drained!, other!]);
  const moving = before.filter(({ address }) => address === drained!.address);
  const { code, stdout } = await scene.tenure("node", "drain", drained!.address);
  expect(code).toBe(0);
  for (const { name } of moving)
    expect(stdout).toMatch(new RegExp(`✓ ${name} runs on b \\(gap \\d+ ms\\)`));
  expect(stdout).toMatch(/^a is empty$/m);
  const after = await scene.untilAllRun([other!]);
  expect(spreadOver(after, [drained!.address, other!.address])).toEqual([0, 6]);
  const events = await scene.server.get("/api/v1/events?event=deployment.moved&limit=500");
  expect((events.body as { items: unknown[] }).items).toHaveLength(moving.length);
});

test("a node of policy none is drained too, and the address is written by the node that takes over", async () => {
  const none = await scene.start("n", { NODE_UNIT_CLAIM_POLICY: "none" });
  const [own] = await scene.createSleepers(1);
  await scene.db.query(
    "update deployment set address = $2, generation = generation + 1 where id = $1",
    [own!.id, none.address],
  );
  await scene.untilAllRun([none]);
  const other = await scene.start("b");
  const writes = await auditAddresses(scene.db);
  const { code, stdout } = await scene.tenure("node", "drain", none.address);
  expect(code).toBe(0);
  expect(stdout).toMatch(/✓ sleeper-1 runs on b/);
  expect(await writes()).toMatchObject([{ before: none.address, after: other.address }]);
});

test("what the next node cannot install goes on where it runs, until one comes that can", async () => {
  const registry = await startFakeRegistry();
  try {
    registry.publish({ name: "svc", version: "1.0.0", files: { "index.js": SERVE } });
    const npm = (url: string) => ({
      TRUSTED_PACKAGE_REGEXP: "svc@.*",
      NPM_CONFIG_REGISTRY: url,
      npm_config_cache: scratchDirectory("npm-cache"),
      npm_config_fetch_retries: "0",
    });
    const drained = await scene.start("a", npm(registry.url));
    const { id } = await scene.create({
      name: "svc",
      package_name: "svc",
      package_version: "1.0.0",
    });
    const [before] = await scene.untilAllRun([drained]);
    const [process] = runningStatuses(before!);
    const unable = await scene.start("unable", npm("http://127.0.0.1:9"));
    expect(await scene.tenure("node", "drain", "--no-wait", drained.address)).toMatchObject({
      code: 0,
    });
    const gaveUp = async () => {
      const { status } = await scene.read(id);
      return status.some(({ address, state }) => address === unable.address && state === "failed");
    };
    await until(gaveUp, { deadlineMs: DEADLINE_MS, what: "the next node to give up" });
    const meanwhile = await scene.read(id);
    expect(meanwhile).toMatchObject({ address: drained.address, generation: before!.generation });
    expect(runningStatuses(meanwhile)).toMatchObject([{ pid: process!.pid }]);
    const { stdout: why } = await scene.tenure("deployment", "why", "svc");
    expect(why).toMatch(/npm install failed/);
    const able = await scene.start("able", npm(registry.url));
    const after = await scene.untilAllRun([able]);
    expect(after).toMatchObject([{ address: able.address }]);
  } finally {
    await registry.close();
  }
});

const SERVE = "setInterval(() => {}, 1_000);";
