import { setTimeout as wait } from "node:timers/promises";

type Truthy<T> = Exclude<T, false | null | undefined | 0 | "">;

/**
 * Waits until `condition` gives something true, and returns that. A condition that throws is "not
 * yet"; its last error is part of the message when time is up.
 */
export async function until<T>(
  condition: () => T | Promise<T>,
  options: { deadlineMs?: number; everyMs?: number; what: string },
): Promise<Truthy<T>> {
  const { deadlineMs = 45_000, everyMs = 20, what } = options;
  const deadline = performance.now() + deadlineMs;
  let lastError: unknown;
  for (;;) {
    try {
      const value = await condition();
      if (value) return value as Truthy<T>;
      lastError = undefined;
    } catch (error) {
      lastError = error;
    }
    if (performance.now() >= deadline) throw tooLate(what, deadlineMs, lastError);
    await wait(everyMs);
  }
}

function tooLate(what: string, deadlineMs: number, cause: unknown): Error {
  const reason = cause === undefined ? "" : `; last error: ${String(cause)}`;
  return new Error(`waited ${deadlineMs} ms in vain for ${what}${reason}`, { cause });
}
