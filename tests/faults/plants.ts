import type { Edit } from "./build.ts";

/** A bug on purpose: one protection taken out. The suite must notice. */
export interface Plant {
  name: string;
  /** What is broken, and what that would cost a user. */
  what: string;
  edits: Edit[];
  workloads: string[];
  faults: string[];
  seed: number;
  seconds: number;
  /** How many seeds it may need. */
  attempts: number;
  instances?: number;
}

export const PLANTS: readonly Plant[] = [];
