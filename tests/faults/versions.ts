import { createSeeded, hash } from "@tenure/testing/seeded";
import type { Build } from "./build.ts";

/** Which program runs as which version. */
export interface Versions {
  of(
    role: string,
    index: number,
    isNewestOnly?: boolean,
  ): {
    builds: readonly Build[];
    versionOf(start: number): number;
  };
}

/**
 * At first every second program of a role is the older version, so that both are there from the beginning; after that
 * the seed decides with every start.
 */
export function createVersions({
  builds,
  seed,
}: {
  builds: readonly Build[];
  seed: number;
}): Versions {
  return {
    of(role, index, isNewestOnly = false) {
      const own = isNewestOnly ? builds.slice(0, 1) : builds;
      const name = `${role}-${index}`;
      return {
        builds: own,
        versionOf: (start) =>
          start === 0
            ? (index + seed) % own.length
            : Math.floor(createSeeded(seed ^ hash(`${name} ${start}`)).fraction() * own.length),
      };
    },
  };
}
