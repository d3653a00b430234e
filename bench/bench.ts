export interface BenchRun {
  /** Where the chance of a measurement comes from: the same seed asks for the same things. */
  seed: number;
  print: (line: string) => void;
}

/** A measurement beside what it is measured by: a peer, or the limit that nobody can beat. */
export interface Bench {
  name: string;
  summary: string;
  run(run: BenchRun): Promise<void>;
}
