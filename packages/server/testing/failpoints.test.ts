import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { isFrozen } from "@tenure/testing/processes/proc";
import { type RunningProcess, startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { until } from "@tenure/testing/until";
import { afterEach, describe, expect, test } from "vitest";
import { failpoint as failpointOfTheServer } from "#failpoint";
import { armFailpoint, disarmAll, failpoint } from "./failpoints.js";

describe("failpoints in this process", () => {
  afterEach(disarmAll);

  test("failpoints replace the server's own, which does nothing", () => {
    expect(failpointOfTheServer).toBe(failpoint);
  });

  test("failpoints do nothing until armed, and nothing when disarmed", async () => {
    await failpoint("here");
    armFailpoint("here", () => {
      throw new Error("planted");
    });
    await expect(failpoint("here")).rejects.toThrow("planted");
    await failpoint("elsewhere");
    disarmAll();
    await failpoint("here");
  });

  test("a failpoint holds the caller until the test releases it", async () => {
    let letGo = () => {};
    const events: string[] = [];
    armFailpoint("gate", () => new Promise<void>((resolve) => (letGo = resolve)));
    const passing = failpoint("gate").then(() => events.push("passed"));
    events.push("waited");
    letGo();
    await passing;
    expect(events).toEqual(["waited", "passed"]);
  });
});

describe("failpoints of another process", () => {
  test("a failpoint pauses the process at the n-th hit, and it continues when thawed", async () => {
    const program = startHitting("commit", 3, { TENURE_FAILPOINTS: "other=kill,commit=pause#2" });
    const line = await program.waitForLine(/failpoint commit reached/);
    expect(JSON.parse(line.input)).toEqual({
      msg: "failpoint commit reached",
      failpoint: "commit",
    });
    await until(() => isFrozen(program.pid), { what: "the pause" });
    expect(program.stdout()).toBe("hit 1");
    await program.thaw();
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.stdout()).toBe("hit 1\nhit 2\nhit 3");
  });

  test.for([
    ["commit=exit:7", { code: 7, signal: null }, ""],
    ["commit=kill#2", { code: null, signal: "SIGKILL" }, "hit 1"],
    ["commit=kill:20#2", { code: null, signal: "SIGKILL" }, "hit 1"],
    ["commit=error:disk full", { code: 0, signal: null }, "Error: disk full"],
    ["commit=delay:1", { code: 0, signal: null }, "hit 1\nhit 2"],
  ] as const)("%s", async ([rules, exit, output]) => {
    const program = startHitting("commit", 2, { TENURE_FAILPOINTS: rules });
    expect(await program.exited).toEqual(exit);
    expect(program.stdout().startsWith(output)).toBe(true);
  });

  test("a failpoint can be armed by a file while the process runs", async () => {
    const file = join(scratchDirectory("failpoints"), "control");
    const program = startHitting("commit", 1_000_000, { TENURE_FAILPOINTS_FILE: file });
    await program.waitForLine(/hit 3/);
    writeFileSync(file, "commit=exit:9#2\n");
    expect(await program.exited).toEqual({ code: 9, signal: null });
  });

  test("an unreadable rule stops the process with a message", async () => {
    const program = startHitting("commit", 1, { TENURE_FAILPOINTS: "commit" });
    expect((await program.exited).code).not.toBe(0);
    expect(program.stderr()).toContain('not a failpoint: "commit"');
  });
});

function startHitting(name: string, times: number, env: Record<string, string>): RunningProcess {
  const module = pathToFileURL(join(repositoryRoot, "packages/server/testing/failpoints.js"));
  const program = `
    import { failpoint } from ${JSON.stringify(module.href)};
    for (let hit = 1; hit <= ${times}; hit++) {
      await failpoint(${JSON.stringify(name)}).then(() => console.log("hit " + hit), (error) => console.log(String(error)));
      await new Promise((resolve) => setTimeout(resolve, 2));
    }`;
  const args = ["--input-type=module", "-e", program];
  return startProcess({ command: process.execPath, args, env });
}
