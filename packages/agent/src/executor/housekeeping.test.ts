import { existsSync, mkdirSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { scratchDirectory } from "../../../../tests/support/scratch.ts";
import { aRow } from "../../testing/executor-fixture.ts";
import { makeDirectories } from "./directories.ts";
import { keepHouse } from "./housekeeping.ts";
import { tryLock } from "./locks.ts";

const installer = {
  isInstalled: () => false,
  install: () => Promise.reject(new Error("not here")),
  removeUnfinished: async () => {},
  removeUnused: async () => {},
};

test("logs that nobody has written for a week go, with what else is empty; a child's own files stay", async () => {
  const directories = makeDirectories(scratchDirectory("node"));
  const [old, fresh, wanted, used] = [aRow().id, aRow().id, aRow().id, aRow().id];
  const longAgo = new Date(Date.now() - 8 * 24 * 60 * 60_000);
  for (const id of [old, fresh, wanted, used]) {
    const log = join(directories.logs, id, "00000001.log");
    mkdirSync(join(directories.logs, id));
    writeFileSync(log, "line\n");
    mkdirSync(join(directories.work, id));
    writeFileSync(join(directories.run, `${id}.lock`), "");
    if (id === fresh) continue;
    utimesSync(log, longAgo, longAgo);
    utimesSync(join(directories.logs, id), longAgo, longAgo);
  }
  writeFileSync(join(directories.work, used, "state.db"), "precious");
  const held = tryLock(join(directories.run, `${used}.lock`));
  onTestFinished(() => held?.release());

  await keepHouse({
    directories,
    installer,
    isWanted: (id) => id === wanted,
    isWantedPackage: () => false,
  });

  const left = (id: string) =>
    [directories.logs, directories.work].map((directory) => existsSync(join(directory, id)));
  expect(left(old)).toEqual([false, false]);
  expect(left(fresh)).toEqual([true, true]);
  expect(left(wanted)).toEqual([true, true]);
  expect(left(used)).toEqual([false, true]);
  expect(existsSync(join(directories.work, used, "state.db"))).toBe(true);
  expect(existsSync(join(directories.run, `${used}.lock`))).toBe(true);
  expect(existsSync(join(directories.run, `${old}.lock`))).toBe(false);
});
