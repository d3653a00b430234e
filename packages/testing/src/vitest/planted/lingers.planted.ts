import { expect, test } from "vitest";
import { identify } from "../../processes/proc.ts";
import { startProcess } from "../../processes/process.ts";

test("goes on until somebody ends the run", async () => {
  const { pid, exited } = startProcess({ command: "sleep", args: ["600"] });
  console.log(`lingering ${JSON.stringify([identify(process.pid), identify(pid)])}`);
  await exited;
  expect.unreachable();
}, 600_000);
