import { defineConfig } from "vitest/config";

// Runs inside a test: planted test files that do what a good one never does. TENURE_PLANTED_STORES
// asks for the stores of a real run.
const stores = process.env.TENURE_PLANTED_STORES === "yes";

export default defineConfig({
  test: {
    root: import.meta.dirname,
    include: ["*.planted.ts"],
    globalSetup: stores ? ["../global-setup.ts"] : [],
    pool: "forks",
    disableConsoleIntercept: true,
    reporters: ["../plain-count-reporter.ts"],
  },
});
