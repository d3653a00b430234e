import { defineConfig } from "vitest/config";
import { SlowFirst } from "./packages/testing/src/vitest/slow-first.ts";

// Tests import the packages' sources, so that a stack trace points at a source line. Tests that start real processes
// use the build, which `npm test` makes first. The conditions lack "import": vitest passes them to Node for `require`
// as well, and pg would load pg-pool's ES module.
const conditions = ["source", "tenure-test", "node"];
const reading = {
  resolve: { conditions },
  ssr: { resolve: { conditions, externalConditions: ["node"] } },
};
const running = { testTimeout: 120_000, hookTimeout: 180_000, pool: "forks" as const };

// These run whole fleets, one at a time (`npm run test:fleets`): beside other tests a server took a minute to start.
const fleets = ["tests/faults/faults.test.ts", "tests/prove/prove.test.ts"];

export default defineConfig({
  test: {
    globalSetup: ["packages/testing/src/vitest/global-setup.ts"],
    reporters: ["default", "./packages/testing/src/vitest/plain-count-reporter.ts"],
    sequence: { sequencer: SlowFirst },
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
        },
      },
    ],
  },
});
