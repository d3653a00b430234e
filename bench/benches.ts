import type { Bench } from "./bench.ts";
import { footprint } from "./footprint.ts";

export const BENCHES: readonly Bench[] = [footprint];
