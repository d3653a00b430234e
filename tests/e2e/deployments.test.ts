import {
  auditAddresses,
  runningStatuses,
  SLEEPER,
  spreadOver,
} from "@tenure/testing/fleet/deployments";
import { spawnUnit } from "@tenure/testing/fleet/node-unit";
import { identify, isAlive, type ProcessIdentity } from "@tenure/testing/processes/proc";
import { startTenure } from "@tenure/testing/processes/process";
import { until } from "@tenure/testing/until";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { DEADLINE_MS, startUnitScene, type UnitScene } from "./node-units.ts";

// Real processes on a busy machine: each start may take many times its second.
vi.setConfig({ testTimeout: 240_000 });

let scene: UnitScene;
beforeAll(async () => {
  scene = await startUnitScene();
});
afterEach(() => scene.clear());
afterAll(() => scene?.stop());

// After three intervals a node takes also what another should have: on a slow machine not before the test is over.
const FAIR = { NODE_UNIT_SCHEDULER_INTERVAL_MS: "15000" };

describe("a fleet of node-units", () => {
  test("R7, R8: five deployments on two nodes end 2 and 3, and a daemon runs on both", async () => {
    const units = await Promise.all([scene.start("a", FAIR), scene.start("b", FAIR)]);
    await scene.untilMembers(units);
    await scene.createSleepers(5);
    await scene.create({ name: "watcher", type: "daemon", command: SLEEPER });
    const views = await scene.untilAllRun(units);
    expect(spreadOver(views, addressesOf(units)).sort()).toEqual([2, 3]);
    const daemon = views.find(({ type }) => type === "daemon")!;
    expect(daemon.address).toBe("");
    expect(runningStatuses(daemon)).toHaveLength(2);
    // One process each: as many different pids as there should be.
    const pids = views.flatMap((view) => runningStatuses(view).map(({ pid }) => pid));
    expect(new Set(pids).size).toBe(7);
  });

  test("kill -9 of a node-unit: what it ran ends with it and runs on the others", async () => {
    const units = await Promise.all(["a", "b", "c"].map((name) => scene.start(name, FAIR)));
    const [lost, ...others] = units;
    await scene.untilMembers(units);
    await scene.createSleepers(7);
    const before = await scene.untilAllRun(units);
    const processes = processesOf(before, lost!.address);
    expect(processes.length).toBeGreaterThan(0);
    await lost!.kill9();
    const after = await scene.untilAllRun(others);
    expect(spreadOver(after, addressesOf(others)).sort()).toEqual([3, 4]);
    await until(() => !processes.some(isAlive), {
      deadlineMs: DEADLINE_MS,
      what: "the children of the dead agent to end",
    });
    for (const view of after) {
      const former = before.find(({ id }) => id === view.id)!;
      expect(view.generation > former.generation).toBe(former.address === lost!.address);
    }
  });

  test("SIGTERM of a node-unit: its children stop, it leaves, and exits with 0", async () => {
    const [leaving, staying] = await Promise.all([scene.start("a"), scene.start("b")]);
    await scene.createSleepers(4);
    const before = await scene.untilAllRun([leaving!, staying!]);
    const processes = processesOf(before, leaving!.address);
    expect(await leaving!.stop(DEADLINE_MS)).toMatchObject({ code: 0 });
    expect(processes.filter(isAlive)).toEqual([]);
    const after = await scene.untilAllRun([staying!]);
    expect(spreadOver(after, [staying!.address])).toEqual([4]);
  });

  test("a changed specification is a new process in the same term; disabled, it stops", async () => {
    const unit = await scene.start("a");
    const [made] = await scene.createSleepers(1);
    const [before] = await scene.untilAllRun([unit]);
    const [process] = processesOf([before!], unit.address);
    await scene.change(made!.id, { command: `${SLEEPER}0` });
    const changed = async () => {
      const view = await scene.read(made!.id);
      const [status] = runningStatuses(view);
      return status && status.pid !== process!.pid && view;
    };
    const limits = { deadlineMs: DEADLINE_MS, what: "another process" };
    expect((await until(changed, limits)).generation).toBe(before!.generation);
    expect(isAlive(process!)).toBe(false);
    await scene.change(made!.id, { enabled: false });
    const stopped = async () => (await scene.read(made!.id)).status[0]?.state === "stopped";
    await until(stopped, { deadlineMs: DEADLINE_MS, what: "it to stop" });
  });
});

describe("policy none", () => {
  test("R1, R2, R13, I2: runs what it owns and its daemons; no address is ever written", async () => {
    const none = { NODE_UNIT_CLAIM_POLICY: "NONE" };
    const unit = await scene.start("n", none);
    const [own, free, lost] = await scene.createSleepers(3);
    await scene.create({ name: "watcher", type: "daemon", command: SLEEPER });
    const place = (id: string, address: string) =>
      scene.db.query(
        "update deployment set address = $2, generation = generation + 1 where id = $1",
        [id, address],
      );
    await place(own!.id, unit.address);
    await place(lost!.id, "nobody-knows-me");
    const writes = await auditAddresses(scene.db);
    const runs = async () => {
      const views = await scene.list();
      const here = views.filter((view) => runningStatuses(view).length === 1);
      return here.length === 2 && here;
    };
    const here = await until(runs, { deadlineMs: DEADLINE_MS, what: "what it owns to run" });
    expect(here.map(({ name }) => name).sort()).toEqual(["sleeper-1", "watcher"]);
    await unit.waitForLine(/ERR_POLICY_DISABLED/, DEADLINE_MS);
    // Another one that claims shows that there was something to claim, and that `none` held nobody up.
    const claiming = await scene.start("c");
    const taken = async () => {
      const addresses = [
        (await scene.read(free!.id)).address,
        (await scene.read(lost!.id)).address,
      ];
      return addresses.every((address) => address === claiming.address);
    };
    await until(taken, { deadlineMs: DEADLINE_MS, what: "the other node to claim both" });
    const written = await writes();
    expect(written.map(({ after }) => after).filter((after) => after === unit.address)).toEqual([]);
    expect(written).toHaveLength(3); // one release, two claims, all by the other node
    expect(unit.stderr().match(/ERR_POLICY_DISABLED/g)).toHaveLength(1);
  });
});

describe("two agents with one key", () => {
  test("the second starts nothing and says why", async () => {
    const secret = { NODE_UNIT_PASSWORD: "the same on both" };
    const first = await scene.start("twin", secret);
    await scene.create({ name: "watcher", type: "daemon", command: SLEEPER });
    await scene.untilAllRun([first]);
    const second = spawnUnit({ name: "twin", urls: [scene.server.url], env: secret });
    await second.waitForLine(/NODE_ADDRESS_IN_USE/, DEADLINE_MS);
    expect(second.stderr()).toMatch(/another process has this node's address/);
    expect(second.stdout()).toBe("");
    const [view] = await scene.list();
    expect(runningStatuses(view!)).toHaveLength(1);
    await second.stop();
  });

  test("a second node-unit in one data directory ends with one sentence", async () => {
    const first = await scene.start("a");
    const second = spawnUnit({ name: "a", urls: [scene.server.url], dataDir: first.dataDir });
    expect(await second.exited).toMatchObject({ code: 1 });
    expect(second.stderr().split("\n")).toHaveLength(1);
    expect(second.stderr()).toContain(`another agent (pid ${first.pid}) uses this data directory`);
  });
});

describe("an operator", () => {
  test("restarts a set one after another: new processes, the same terms", async () => {
    const units = await Promise.all([scene.start("a"), scene.start("b")]);
    await scene.createSleepers(4);
    const before = await scene.untilAllRun(units);
    const names = before.map(({ name }) => name);
    const { code } = await scene.tenure(
      "deployment",
      "restart",
      "--max-unavailable",
      "2",
      ...names,
    );
    expect(code).toBe(0);
    const after = await scene.untilAllRun(units);
    for (const view of after) {
      const former = before.find(({ id }) => id === view.id)!;
      expect(view.generation).toBe(former.generation);
      expect(runningStatuses(view)[0]?.pid).not.toBe(runningStatuses(former)[0]?.pid);
    }
  });

  test("a node-unit names in one sentence what is wrong with its environment", async () => {
    const run = startTenure(["node"], {
      env: { HOST_URL: "here", NODE_UNIT_CLAIM_POLICY: "nome" },
    });
    expect(await run.exited).toMatchObject({ code: 1 });
    expect(run.stderr()).toMatch(/HOST_URL must be URLs/);
    expect(run.stderr()).toMatch(/did you mean none\?/);
    expect(run.stderr()).not.toMatch(/^\s+at /m);
  });
});

describe("rows that nobody should have written", () => {
  test("R11, R12: a coded error once per change, and the rest goes on", async () => {
    const unit = await scene.start("a");
    await scene.db.query(`
      insert into deployment (id, name, command, type, address) values
        (gen_random_uuid(), 'odd', '${SLEEPER}', 'cron', ''),
        (gen_random_uuid(), 'stray', '${SLEEPER}', 'daemon', 'somewhere')`);
    const [good] = await scene.createSleepers(1);
    const runs = async () => {
      const views = await scene.list();
      const here = views.filter((view) => runningStatuses(view).length === 1);
      return here.length === 2 && here.map(({ name }) => name).sort();
    };
    const limits = { deadlineMs: DEADLINE_MS, what: "the good ones to run" };
    expect(await until(runs, limits)).toEqual([good!.name, "stray"]);
    await unit.waitForLine(/ERR_INVALID_TYPE/, DEADLINE_MS);
    await scene.change(good!.id, { enabled: false }); // another pass over the same rows
    const stopped = async () => (await scene.read(good!.id)).status[0]?.state === "stopped";
    await until(stopped, { deadlineMs: DEADLINE_MS, what: "it to stop" });
    for (const code of ["ERR_INVALID_TYPE", "ERR_DAEMON_ADDRESS_SET"])
      expect(unit.stderr().match(new RegExp(code, "g"))).toHaveLength(1);
  });
});

const addressesOf = (units: readonly { address: string }[]): string[] =>
  units.map(({ address }) => address);

function processesOf(
  views: Parameters<typeof runningStatuses>[0][],
  address: string,
): ProcessIdentity[] {
  return views
    .flatMap(runningStatuses)
    .filter((status) => status.address === address && status.pid !== null)
    .flatMap(({ pid }) => identify(pid!) ?? []);
}
