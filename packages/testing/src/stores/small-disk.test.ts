import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { scratchDirectory } from "../scratch.ts";
import { createSmallDisk, unmountBelow } from "./small-disk.ts";

const disk = createSmallDisk(scratchDirectory("disk"), 2);

// Where nobody may mount there is no such fault, and the run says so.
if (disk)
  test("a small disk is full when it was filled, has room when it was freed, and is gone in the end", async () => {
    const file = join(disk.directory, "file");
    writeFileSync(file, "before");
    await disk.fill();
    expect(() => writeFileSync(`${file}-2`, Buffer.alloc(4096))).toThrow("ENOSPC");
    expect(readFileSync(file, "utf8")).toBe("before");
    disk.free();
    writeFileSync(`${file}-2`, Buffer.alloc(4096));
    disk.discard();
    expect(existsSync(disk.directory)).toBe(false);
  });

test("what a dead run has left mounted is found by the directory it is in", () => {
  const directory = scratchDirectory("run");
  const left = createSmallDisk(join(directory, "deep"), 1);
  expect(isMounted(directory)).toBe(left !== undefined);
  unmountBelow(`${directory}/de`);
  expect(isMounted(directory)).toBe(left !== undefined);
  unmountBelow(directory);
  expect(isMounted(directory)).toBe(false);
});

const isMounted = (directory: string): boolean =>
  readFileSync("/proc/mounts", "utf8").includes(directory);
