import { expect, test } from "vitest";
import { PROOFS } from "./proofs.ts";

const SEED = 7_070;

test("every proof has a name of its own and says what it shows", () => {
  expect(new Set(PROOFS.map(({ name }) => name)).size).toBe(PROOFS.length);
  for (const { name, summary } of PROOFS) {
    expect(name).toMatch(/^[a-z]+(-[a-z]+)*$/);
    expect(summary.length).toBeGreaterThan(20);
  }
});

// Seconds each on an idle machine; a busy one may take many times as long.
test.each(PROOFS)("$name: $summary", { timeout: 600_000 }, async ({ name, run }) => {
  const printed: string[] = [];
  await run({ size: "ci", seed: SEED, print: (line) => printed.push(line) });
  console.log([`${name}:`, ...printed.map((line) => `  ${line}`)].join("\n"));
  expect(printed).not.toEqual([]);
});
