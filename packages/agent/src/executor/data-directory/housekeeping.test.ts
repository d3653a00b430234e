import { existsSync, mkdirSync, readdirSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { scratchDirectory } from "@tenure/testing/scratch";
import { expect, onTestFinished, test } from "vitest";
import { aRow } from "../../../testing/executor-fixture.ts";
import { makeDirectories } from "./directories.ts";
import { removeUnused } from "./housekeeping.ts";
import { tryLock } from "./locks.ts";

const installer = {
  isInstalled: () => false,
  install: () => Promise.reject(new Error("not here")),
  removeUnfinished: async () => {},
  removeUnused: async () => {},
};

test("logs without writes for a week are removed, and files of the child stay", async () => {
  const directories = makeDirectories(scratchDirectory("node"), () => {});
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

  await removeUnused({
    directories,
    installer,
    isDesired: (id) => id === wanted,
    workKeepDays: 0,
    isPackageDesired: () => false,
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

test("files of a deployment are removed when it was not desired here for the configured time", async () => {
  const directories = makeDirectories(scratchDirectory("node"), () => {});
  const [gone, recent, wanted] = [aRow().id, aRow().id, aRow().id];
  const daysAgo = (days: number) => new Date(Date.now() - days * 24 * 60 * 60_000);
  for (const [id, days] of [
    [gone, 31],
    [recent, 29],
    [wanted, 400],
  ] as const) {
    mkdirSync(join(directories.work, id));
    writeFileSync(join(directories.work, id, "state.db"), "precious");
    utimesSync(join(directories.work, id), daysAgo(days), daysAgo(days));
  }
  const options = { directories, installer, isPackageDesired: () => false };
  await removeUnused({ ...options, isDesired: (id) => id === wanted, workKeepDays: 30 });
  expect(readdirSync(directories.work).sort()).toEqual([recent, wanted].sort());
  // It was wanted until now, so its time begins now.
  await removeUnused({ ...options, isDesired: () => false, workKeepDays: 30 });
  expect(readdirSync(directories.work).sort()).toEqual([recent, wanted].sort());
});
