import type { Dimension } from "./dimension.ts";
import { cuts } from "./dimensions/cuts.ts";
import { manyDimension } from "./dimensions/many.ts";
import { poolers } from "./dimensions/poolers.ts";
import { rows } from "./dimensions/rows.ts";
import { stopsDimension } from "./dimensions/stops.ts";
import { time } from "./dimensions/time.ts";
import { WORKLOADS } from "./workloads.ts";

/** Everything at once under every fault. `--only` and `--faults` narrow this one. */
export const main: Dimension = {
  name: "main",
  summary:
    "all workloads at once, under every fault of processes, stores, networks, disks and clocks",
  workloads: WORKLOADS,
  faults: [],
  seconds: 30,
};

export const DIMENSIONS: readonly Dimension[] = [
  main,
  stopsDimension,
  manyDimension,
  time,
  rows,
  poolers,
  cuts,
];
