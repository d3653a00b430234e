/** `ci` is small enough for every test run; `full` is what a release is held to. */
export type Size = "ci" | "full";

export interface ProofRun {
  size: Size;
  /** The same seed makes the same choices. Moments in time stay the machine's own. */
  seed: number;
  /** How many faults to make, for a proof that counts them; its size decides when left out. */
  count?: number | undefined;
  print: (line: string) => void;
}

/** A program that shows one promise kept, on real processes and stores. */
export interface Proof {
  name: string;
  summary: string;
  /** Throws when the promise is broken. */
  run(run: ProofRun): Promise<void>;
}
