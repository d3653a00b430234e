import type { Bench } from "./bench.ts";
import { footprint } from "./footprint.ts";
import { nonces } from "./nonces.ts";

export const BENCHES: readonly Bench[] = [footprint, nonces];
