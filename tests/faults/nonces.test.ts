import { describe, expect, test } from "vitest";
import * as contention from "../prove/nonces-contention.ts";
import * as faults from "../prove/nonces-faults.ts";
import * as sigstop from "../prove/nonces-sigstop.ts";

// The proofs in their small size, with real processes. `npm run prove` runs them in full.
describe.concurrent("I9, I10, I11: nonces among several servers", () => {
  test.for([contention, sigstop, faults])("$name", { timeout: 240_000 }, async ({ run }) => {
    const lines: string[] = [];
    await run({ size: "ci", seed: 7, print: (line) => lines.push(line) });
    expect(lines.length).toBeGreaterThan(2);
  });
});
