import { defineConfig } from "vitest/config";

// Tests read the packages' sources, not their build: a failing line is a line somebody wrote. Tests that
// start real processes use the build, which `npm test` makes first.
// Not "import": vitest hands these to Node for `require` as well, and pg would get pg-pool's ES module.
const conditions = ["source", "tenure-test", "node"];

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions, externalConditions: ["node"] } },
  test: {
    include: ["packages/*/{src,testing}/**/*.test.ts", "tests/**/*.test.ts"],
    exclude: ["**/node_modules/**", "**/dist/**"],
    globalSetup: ["tests/support/global-setup.ts"],
    testTimeout: 120_000,
    hookTimeout: 180_000,
    pool: "forks",
    maxWorkers: 4,
    reporters: ["default", "./tests/support/plain-count-reporter.ts"],
  },
});
