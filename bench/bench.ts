export interface BenchRun {
  print: (line: string) => void;
}

/** A measurement beside what it is measured by: a peer, or the limit that nobody can beat. */
export interface Bench {
  name: string;
  summary: string;
  run(run: BenchRun): Promise<void>;
}
