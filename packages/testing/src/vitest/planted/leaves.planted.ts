import { expect, test } from "vitest";
import { identify } from "../../processes/proc.ts";
import { startProcess } from "../../processes/process.ts";

test("leaves a process running", () => {
  const { pid } = startProcess({ command: "sleep", args: ["300"] });
  console.log(`left ${JSON.stringify(identify(pid))}`);
  expect(pid).toBeGreaterThan(0);
});
