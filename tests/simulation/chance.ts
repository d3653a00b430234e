import { createSeeded } from "@tenure/testing/seeded";

export interface Chance {
  /** At least 0, below 1. */
  fraction(): number;
  between(min: number, max: number): number;
  isTrue(probability: number): boolean;
  oneOf<T>(choices: readonly T[]): T;
}

export function createChance(seed: number): Chance {
  const { fraction, between } = createSeeded(seed);
  return {
    fraction,
    between,
    isTrue: (probability) => fraction() < probability,
    oneOf: (choices) => choices[Math.floor(fraction() * choices.length)]!,
  };
}
