import type { ResourceUsage } from "@tenure/protocol";

export interface Sampler {
  /** Usage since the last call. Cheap: a few small reads, no timer. */
  sample(): ResourceUsage;
}

export function createSampler(): Sampler {
  throw new Error("the sampler is not written yet");
}
