import { TenureError } from "@tenure/protocol";
import { expect, test, vi } from "vitest";
import { aRow, startExecutor, wanted } from "../../testing/executor-fixture.ts";
import type { Goal } from "./goal.ts";
import { createChildSecrets } from "./secrets.ts";

vi.setConfig({ testTimeout: 120_000 });

const goal = (key: string) => ({ deploymentId: "d", generation: 1, key }) as Goal;
const ENV = { A: { secret: "db" }, B: "plain" };
const away = new TenureError("DEPENDENCY_DOWN", { dependency: "the server" });
const gone = new TenureError("NOT_FOUND", { what: "secret", id: "db" });
const SHOW = 'echo "got $PASSWORD"; exec sleep 1000';

test("without a server the values of the last start of the same specification and generation are used", async () => {
  const answers: (object | Error)[] = [{ db: "one" }, away, away, { db: "two" }, gone, away];
  const secrets = createChildSecrets(async () => {
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return answer as Record<string, string>;
  });
  expect(await secrets.resolve(goal("a"), ENV)).toEqual({ A: "one", B: "plain" });
  expect(await secrets.resolve(goal("a"), ENV)).toEqual({ A: "one", B: "plain" });
  await expect(secrets.resolve(goal("b"), ENV)).rejects.toThrow("waits for its secrets");
  expect(await secrets.resolve(goal("b"), ENV)).toEqual({ A: "two", B: "plain" });
  // A refusal is no outage: the values are forgotten.
  await expect(secrets.resolve(goal("b"), ENV)).rejects.toThrow("secret db does not exist");
  await expect(secrets.resolve(goal("b"), ENV)).rejects.toThrow("the server is down");
});

test("an environment without references asks nobody", async () => {
  const secrets = createChildSecrets(async () => {
    throw new Error("was asked");
  });
  expect(await secrets.resolve(goal("a"), { B: "plain" })).toEqual({ B: "plain" });
});

test("a reference that the answer lacks is not started as text", async () => {
  const secrets = createChildSecrets(async () => ({ toString: "x" }));
  await expect(secrets.resolve(goal("a"), ENV)).rejects.toThrow("no value of db");
  const inherited = { A: { secret: "constructor" } };
  await expect(secrets.resolve(goal("a"), inherited)).rejects.toThrow("no value of constructor");
});

test("values are taken out of a text, the longest first, and short ones stay", async () => {
  const secrets = createChildSecrets(async () => ({
    db: "hunter2",
    url: "pg://hunter2@db",
    x: "a",
  }));
  await secrets.resolve(goal("a"), ENV);
  expect(secrets.redact("a pg://hunter2@db and hunter2")).toBe("a *** and ***");
});

test("a child gets the value, is started again for a new version, and waits while there is none", async () => {
  let value: string | undefined = "one";
  const { executor, reported, reports, logLines } = await startExecutor({
    async readSecrets() {
      if (value === undefined) throw gone;
      return { db: value };
    },
  });
  const env = { PASSWORD: { secret: "db" } };
  const row = aRow({ command: SHOW, env, secret_versions: { db: 1 } });
  executor.setDesired([wanted(row)]);
  const first = await reported(row, "running");
  expect(await logLines(row)).toEqual(["got one"]);
  executor.setDesired([wanted({ ...row, secret_versions: { db: 1 } })]);
  value = "two";
  executor.setDesired([wanted({ ...row, secret_versions: { db: 2 } })]);
  const second = await reported(row, "running", ({ pid }) => pid !== first.pid);
  expect(await logLines(row, 2)).toEqual(["got one", "got two"]);
  expect(second).toMatchObject({ restarts: 0 });
  expect(second.spec_hash).not.toBe(first.spec_hash);
  value = undefined;
  await executor.restart(row.id);
  const held = await reported(row, "failed");
  expect(held).toMatchObject({ pid: null, last_error: expect.stringContaining("waits for") });
  value = "three";
  const third = await reported(row, "running", ({ pid }) => pid !== second.pid);
  expect(third.restarts).toBe(1);
  expect(JSON.stringify(reports)).not.toMatch(/"one"|"two"|"three"/);
});
