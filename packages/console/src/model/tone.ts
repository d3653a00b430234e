/** Severity of a state. Shown as a shape and a word as well, never as a colour alone. */
export type Tone = "good" | "busy" | "warn" | "bad" | "idle";

export interface Condition {
  tone: Tone;
  /** One or two words. */
  word: string;
  /** An optional explanation. */
  detail?: string;
}
