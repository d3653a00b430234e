export interface BenchRun {
  /** Where the chance of a measurement comes from: the same seed asks for the same things. */
  seed: number;
  /** Only this part of a bench that has parts. */
  part?: string | undefined;
  /** So many jobs per count instead of the bench's own number, for a run of seconds. */
  jobs?: number | undefined;
  /** Only this mode of a part that counts several. */
  mode?: string | undefined;
  print: (line: string) => void;
  /** Of `fleet`: how many node-units, and how many rows appear at once. */
  nodes?: number;
  rows?: number;
}

/** A measurement beside what it is measured by: a peer, or the limit that nobody can beat. */
export interface Bench {
  name: string;
  summary: string;
  parts?: readonly string[];
  run(run: BenchRun): Promise<void>;
}
