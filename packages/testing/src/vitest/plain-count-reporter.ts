import type { Reporter, SerializedError, TestModule, TestSuite, Vitest } from "vitest/node";

/**
 * Ends the output with one plain line, `N passed, N failed`. Skipped tests are counted too and fail
 * the run: a test that cannot run here is a fault to repair, not a detail to overlook.
 */
// biome-ignore lint/style/noDefaultExport: vitest loads a reporter named by its path this way only.
export default class PlainCountReporter implements Reporter {
  #vitest: Vitest | undefined;

  onInit(vitest: Vitest): void {
    this.#vitest = vitest;
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const { passed, failed, skipped } = count(modules);
    // Somebody who asked for some tests by name (-t) knows that the others do not run.
    const isFiltered = this.#vitest?.config.testNamePattern !== undefined;
    if (skipped > 0 && !isFiltered) {
      process.stdout.write("\nskipped tests fail the run: define a test only where it can run\n");
      process.exitCode = 1;
    }
    const skippedPart = skipped === 0 ? "" : `, ${skipped} skipped`;
    process.stdout.write(`\n${passed} passed, ${failed + unhandled.length} failed${skippedPart}\n`);
  }
}

function count(modules: readonly TestModule[]) {
  const states = modules.flatMap((module) =>
    [...module.children.allTests()].map((test) => test.result().state),
  );
  const having = (state: string) => states.filter((each) => each === state).length;
  const passed = having("passed");
  // A file that does not load, or a failed beforeAll, is an error of no test.
  const broken = modules.flatMap(suitesOf).filter((suite) => suite.errors().length > 0);
  return {
    passed,
    failed: having("failed") + broken.length,
    skipped: states.length - passed - having("failed"),
  };
}

function suitesOf(module: TestModule): (TestModule | TestSuite)[] {
  return [module, ...module.children.allSuites()];
}
