import type { NonceStatus } from "@tenure/protocol";
import type { Tone } from "./tone.ts";

const TONES: Record<NonceStatus, Tone> = {
  HELD: "busy",
  CONSUMED: "good",
  RELEASED: "idle",
  QUARANTINED: "warn",
};

export const nonceTone = (status: NonceStatus): Tone => TONES[status];
