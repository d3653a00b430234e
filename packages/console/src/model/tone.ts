/** How a state is to be taken. Always shown as a shape and a word too, never as a colour alone. */
export type Tone = "good" | "busy" | "warn" | "bad" | "idle";

export interface Condition {
  tone: Tone;
  /** One or two words. */
  word: string;
  /** A sentence, where there is more to say. */
  detail?: string;
}
