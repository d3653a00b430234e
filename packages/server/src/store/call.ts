/** A script that was started. Calls that are started after it can depend on its reply. */
export interface Call<Reply = unknown> {
  readonly reply: Promise<Reply>;
}

/** A step that was started: its answer, and its call for steps that depend on it. */
export interface Started<Answer> {
  readonly call: Call;
  readonly answer: Promise<Answer>;
}

/** The reply of a call that was not run because a condition did not hold. */
export const SKIPPED = Symbol("skipped");
export type Skipped = typeof SKIPPED;

/** A word of the reply of an earlier call: the one `at` this position `is` this word; without `is`, there is any word. */
export interface Condition {
  readonly call: Call;
  readonly at: number;
  readonly is?: string | undefined;
}

/**
 * When a call is run. A call that failed, or was skipped, satisfies no condition.
 *
 * `all`: all of them hold. `words`: of this argument, a list of words, each word stays only if its own condition holds; a
 * call without a word left is skipped. So jobs of one tick can share a call although each depends on its own.
 */
export interface When<Text extends string = string> {
  readonly all?: readonly Condition[] | undefined;
  readonly words?: { readonly of: Text; readonly each: readonly (Condition | undefined)[] };
}

/** How a call ended. */
export type Outcome = { readonly reply: unknown } | "failed" | Skipped;

/** A call that has its outcome already, as in memory. */
export interface EndedCall<Reply = unknown> extends Call<Reply> {
  readonly outcome: Outcome;
}

/** A call with its outcome, once it is known. Stores make them; other code sees a `Call`. */
export class StartedCall<Reply = unknown> implements Call<Reply> {
  readonly reply: Promise<Reply>;
  outcome: Outcome | undefined;
  #resolve!: (reply: Reply) => void;
  #reject!: (error: unknown) => void;

  constructor() {
    this.reply = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** `raw`: the reply as the script gave it, which conditions are compared with. */
  answer(raw: unknown, reply: Reply): void {
    this.outcome = { reply: raw };
    this.#resolve(reply);
  }

  skip(): void {
    this.outcome = SKIPPED;
    this.#resolve(SKIPPED as Reply);
  }

  fail(error: unknown): void {
    this.outcome = "failed";
    this.#reject(error);
  }
}

export const outcomeOf = (call: Call): Outcome | undefined =>
  (call as StartedCall | EndedCall).outcome;

/** The calls without an outcome that `when` depends on. One that it names twice is listed twice. */
export function openCallsOf({ all = [], words }: When): Call[] {
  const open: Call[] = [];
  for (const { call } of all) if (outcomeOf(call) === undefined) open.push(call);
  for (const condition of words?.each ?? [])
    if (condition && outcomeOf(condition.call) === undefined) open.push(condition.call);
  return open;
}

/** Whether a condition on a call with an outcome holds. `run-batch.lua` decides the same. */
export function holds({ call, at, is }: Condition): boolean {
  const outcome = outcomeOf(call);
  if (typeof outcome !== "object" || !Array.isArray(outcome.reply)) return false;
  const word: unknown = outcome.reply[at];
  return word !== undefined && word !== null && (is === undefined || String(word) === is);
}

/** The words that stay, when all conditions have their outcome; `undefined`: the call is skipped. */
export function wordsLeft(
  text: string,
  each: readonly (Condition | undefined)[],
): string | undefined {
  if (each.every((condition) => condition === undefined || holds(condition))) return text;
  const left = text.split(" ").filter((_, at) => {
    const condition = each[at];
    return condition === undefined || holds(condition);
  });
  return left.length > 0 ? left.join(" ") : undefined;
}

/** Conditions that become known one by one, as the calls of a tick are started. */
export class Gathered {
  readonly #expected: number;
  readonly #all: Condition[] = [];
  #onComplete: ((all: readonly Condition[]) => void) | undefined;

  constructor(expected: number) {
    this.#expected = expected;
  }

  add(condition: Condition): void {
    this.#all.push(condition);
    this.#check();
  }

  /** Called once, when all conditions are known. */
  whenComplete(callback: (all: readonly Condition[]) => void): void {
    this.#onComplete = callback;
    this.#check();
  }

  #check(): void {
    if (this.#all.length < this.#expected) return;
    const callback = this.#onComplete;
    this.#onComplete = undefined;
    callback?.(this.#all);
  }
}
