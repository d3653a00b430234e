import { existsSync, writeFileSync } from "node:fs";

const PLACES = [
  "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
  "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
  "/usr/lib/faketime/libfaketimeMT.so.1",
  "/usr/lib64/faketime/libfaketimeMT.so.1",
];

/** `TENURE_TEST_FAKETIME`, else where a distribution puts it; undefined when there is none. */
export function findFaketime(): string | undefined {
  const wish = process.env.TENURE_TEST_FAKETIME;
  if (wish) return wish;
  return PLACES.find((place) => existsSync(place));
}

/** The wall clock of a process that can be moved while it runs. Its monotonic clock stays true. */
export interface MovableClock {
  env: Record<string, string>;
  /** So many seconds from the true time. */
  move(seconds: number): void;
}

export function createMovableClock(library: string, file: string): MovableClock {
  const move = (seconds: number) =>
    writeFileSync(file, `${seconds < 0 ? "-" : "+"}${Math.abs(seconds)}\n`, { mode: 0o644 });
  move(0);
  return {
    env: {
      LD_PRELOAD: library,
      FAKETIME_TIMESTAMP_FILE: file,
      FAKETIME_CACHE_DURATION: "1",
      FAKETIME_DONT_FAKE_MONOTONIC: "1",
      DONT_FAKE_MONOTONIC: "1",
    },
    move,
  };
}

/**
 * For Redis, whose allocator (jemalloc) asks for the time while libfaketime is still being loaded and so never gets it:
 * with the C library before it, memory comes from there, and jemalloc is not used.
 */
export function forRedis({ env }: MovableClock): Record<string, string> {
  return { ...env, LD_PRELOAD: `${env.LD_PRELOAD} libc.so.6` };
}
