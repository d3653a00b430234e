import { defineConfig } from "vitest/config";

// Tests read the packages' sources, not their build: a failing line is a line somebody wrote. Tests that
// start real processes use the build, which `npm test` makes first.
// Not "import": vitest hands these to Node for `require` as well, and pg would get pg-pool's ES module.
const conditions = ["source", "tenure-test", "node"];
const reading = {
  resolve: { conditions },
  ssr: { resolve: { conditions, externalConditions: ["node"] } },
};
const running = { testTimeout: 120_000, hookTimeout: 180_000, pool: "forks" as const };

// Each of these runs whole fleets, and has the machine to itself, after the others: beside them a server took a minute to
// start.
const fleets = ["tests/faults/faults.test.ts", "tests/prove/prove.test.ts"];

export default defineConfig({
  test: {
    globalSetup: ["packages/testing/src/vitest/global-setup.ts"],
    reporters: ["default", "./packages/testing/src/vitest/plain-count-reporter.ts"],
    projects: [
      {
        ...reading,
        test: {
          ...running,
          name: "tests",
          include: ["packages/*/{src,testing}/**/*.test.ts", "tests/**/*.test.ts"],
          exclude: ["**/node_modules/**", "**/dist/**", ...fleets],
          maxWorkers: 4,
        },
      },
      {
        ...reading,
        test: {
          ...running,
          name: "fleets",
          include: fleets,
          maxWorkers: 1,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
