import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { startProcess } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { expect, onTestFinished, test } from "vitest";
import { lockDirectory } from "./directory-lock.ts";

test("whoever comes second is told the process that has it", () => {
  const directory = join(scratchDirectory("lock"), "made", "on", "the", "way");
  const lock = lockDirectory(directory);
  expect(lock).toHaveProperty("release");
  expect(lockDirectory(directory)).toEqual({ heldBy: `pid ${process.pid}` });
});

test("a lock that was released is free", () => {
  const directory = scratchDirectory("lock");
  const lock = lockDirectory(directory);
  if ("heldBy" in lock) throw new Error("the directory is new");
  lock.release();
  expect(lockDirectory(directory)).toHaveProperty("release");
});

test("a file left by a dead process, even with its pid in it, holds nobody up", () => {
  const directory = scratchDirectory("lock");
  writeFileSync(join(directory, "lock"), "pid 1\n");
  expect(lockDirectory(directory)).toHaveProperty("release");
  expect(readFileSync(join(directory, "lock"), "utf8")).toBe(`pid ${process.pid}\n`);
});

test("another process keeps us out until it is killed, and not a moment longer", async () => {
  const directory = scratchDirectory("lock");
  const holder = startHolder(directory);
  onTestFinished(async () => void (await holder.kill9()));
  await holder.waitForLine(/^locked$/);
  expect(lockDirectory(directory)).toEqual({ heldBy: `pid ${holder.pid}` });
  await holder.kill9();
  expect(lockDirectory(directory)).toHaveProperty("release");
});

test("a child process of ours does not keep the lock when we let it go", async () => {
  const directory = scratchDirectory("lock");
  const lock = lockDirectory(directory);
  if ("heldBy" in lock) throw new Error("the directory is new");
  const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "ignore" });
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await once(child, "exit");
  });
  lock.release();
  expect(lockDirectory(directory)).toHaveProperty("release");
});

test("only its owner may enter a directory it made", () => {
  const parent = scratchDirectory("lock");
  mkdirSync(join(parent, "data"), { recursive: true });
  lockDirectory(join(parent, "data", "new"));
  expect(statSync(join(parent, "data", "new")).mode & 0o777).toBe(0o700);
});

/** A process that runs the built form of the file, as a server does. */
function startHolder(directory: string) {
  const built = join(repositoryRoot, "packages/server/dist/store/embedded/directory-lock.js");
  const program = `
    import { lockDirectory } from ${JSON.stringify(built)};
    console.log("release" in lockDirectory(${JSON.stringify(directory)}) ? "locked" : "refused");
    setInterval(() => {}, 1000);`;
  return startProcess({
    command: process.execPath,
    args: ["--input-type=module", "-e", program],
  });
}
