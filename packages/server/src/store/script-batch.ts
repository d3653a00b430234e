import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { atEndOfTick } from "../kernel/tick.ts";
import {
  type Call,
  type Condition,
  holds,
  openCallsOf,
  outcomeOf,
  type When,
  wordsLeft,
} from "./call.ts";
import { SCRIPTS, SHARED, type SomeScript } from "./script.ts";

/** One script with what it is called with. */
export interface ScriptCall {
  script: SomeScript;
  keys: string[];
  /** The JSON object, then the texts. */
  argv: string[];
  when?: When | undefined;
}

/** A batch to evaluate: `EVALSHA sha keys… argv…`, or `EVAL lua` on a server without the script. */
export interface Evaluation {
  lua: string;
  sha: string;
  keys: string[];
  argv: string[];
}

/** A call that was started: what to run, and what to do with the answer. */
export interface StartedScript {
  readonly call: ScriptCall;
  /** What conditions of other calls name. */
  readonly handle: Call;
  answer(reply: unknown): void;
  skip(): void;
  fail(error: unknown): void;
}

/** A batch of this many calls keeps Redis busy for some milliseconds; other clients run in between. */
const CALLS_MAX = 512;

/**
 * Runs scripts. On one Redis it collects those that are started in one tick of the event loop and runs them in one round
 * trip, in that order; a condition on a call of the same batch is evaluated there (`run-batch.lua`). Any other condition is
 * evaluated here, when the call that it names has answered, and the script is started then.
 *
 * Any command costs the client library about ten microseconds, and Redis a fraction of that; a job takes a dozen
 * commands. Pipelining saves round trips, not commands. So one command runs them all: a script that contains every
 * script. A call that fails does not affect the others.
 *
 * On a Cluster the keys of two jobs are on different servers, so every script is sent alone (`joins: false`). A server that
 * is configured as one Redis and refuses keys of two slots is treated so from then on.
 */
export class ScriptRunner {
  readonly #evaluate: (evaluation: Evaluation) => Promise<unknown>;
  #joins: boolean;
  /** Started in this tick, with the position of each. */
  #gathered = new Map<Call, StartedScript>();

  constructor(
    evaluate: (evaluation: Evaluation) => Promise<unknown>,
    { joins }: { joins: boolean },
  ) {
    this.#evaluate = evaluate;
    this.#joins = joins;
  }

  start(started: StartedScript): void {
    const { when } = started.call;
    if (!when) {
      this.#begin(started);
      return;
    }
    const open = openCallsOf(when);
    if (open.length === 0) {
      const call = decided(started.call, when);
      if (call) this.#begin({ ...started, call: { ...call, when: undefined } });
      else started.skip();
    } else if (this.#joins && open.every((call) => this.#gathered.has(call))) this.#begin(started);
    else void this.#startLater(started, open);
  }

  /** Resolves when the call has its outcome; `undefined` if it is in the batch of this tick, or has it. */
  awaitedBy(call: Call): Promise<unknown> | undefined {
    if (outcomeOf(call) !== undefined || (this.#joins && this.#gathered.has(call)))
      return undefined;
    return call.reply.catch(() => {});
  }

  #begin(started: StartedScript): void {
    if (!this.#joins) {
      void this.#sendAlone(started);
      return;
    }
    if (this.#gathered.size === 0) atEndOfTick("send", () => this.#flush());
    this.#gathered.set(started.handle, started);
  }

  /** Starts the call when those that are not in the batch of this tick have answered. */
  async #startLater(started: StartedScript, calls: readonly Call[]): Promise<void> {
    const before = this.#joins ? calls.filter((call) => !this.#gathered.has(call)) : calls;
    await Promise.allSettled(before.map(({ reply }) => reply));
    this.start(started);
  }

  #flush(): void {
    const gathered = [...this.#gathered.values()];
    this.#gathered = new Map();
    for (let from = 0; from < gathered.length; from += CALLS_MAX)
      this.#sendTogether(gathered.slice(from, from + CALLS_MAX));
  }

  #sendTogether(some: readonly StartedScript[]): void {
    const batch = new Batch();
    const later: StartedScript[] = [];
    for (const started of some) {
      if (batch.decides(started.call.when)) batch.add(started);
      else later.push(started);
    }
    void this.#send(batch);
    // They depend on a call of a batch before this one, and wait for its answer.
    for (const started of later) this.start(started);
  }

  async #send(batch: Batch): Promise<void> {
    const { started } = batch;
    if (started.length === 0) return;
    const [only] = started;
    if (only && started.length === 1 && !only.call.when) return this.#sendAlone(only);
    try {
      const replies = (await this.#evaluate(batch.evaluation())) as unknown[];
      for (const [index, each] of started.entries()) settle(each, replies[index]);
    } catch (error) {
      if (!isCrossSlot(error)) {
        for (const each of started) each.fail(error);
        return;
      }
      // Nothing was run: keys are checked before a script begins.
      this.#joins = false;
      for (const each of started) this.start(each);
    }
  }

  async #sendAlone(started: StartedScript): Promise<void> {
    const { script, keys, argv } = started.call;
    try {
      started.answer(await this.#evaluate({ lua: script.lua, sha: script.sha, keys, argv }));
    } catch (error) {
      started.fail(error);
    }
  }
}

const isCrossSlot = (error: unknown): boolean =>
  error instanceof Error && error.message.startsWith("CROSSSLOT");

function settle(started: StartedScript, reply: unknown): void {
  if (reply instanceof Error) started.fail(reply);
  else if (reply === null && started.call.when) started.skip();
  else started.answer(reply);
}

/** The call as its conditions leave it, all of which have their outcome; `undefined`: it is not run. */
function decided(call: ScriptCall, { all = [], words }: When): ScriptCall | undefined {
  if (!all.every(holds)) return undefined;
  if (!words) return call;
  const at = textAt(call, words.of);
  const left = wordsLeft(call.argv[at]!, words.each);
  return left === undefined ? undefined : { ...call, argv: call.argv.with(at, left) };
}

/** The position of a text in `argv`: the JSON object is the first. */
const textAt = ({ script }: ScriptCall, name: string): number => 1 + script.texts.indexOf(name);

/** The calls of one round trip, in their order. */
class Batch {
  readonly started: StartedScript[] = [];
  readonly #keys: string[] = [];
  readonly #argv: string[] = [];
  /** Lua counts from 1. */
  readonly #numbers = new Map<Call, number>();

  /** Whether every open condition is on a call of this batch. */
  decides(when: When | undefined): boolean {
    return !when || openCallsOf(when).every((call) => this.#numbers.has(call));
  }

  add(started: StartedScript): void {
    const { script, keys, argv, when } = started.call;
    this.started.push(started);
    this.#numbers.set(started.handle, this.started.length);
    this.#keys.push(...keys);
    if (when) this.#addConditions(started.call, when);
    this.#argv.push(library().names.get(script)!, ...argv);
  }

  evaluation(): Evaluation {
    const { lua, sha } = library();
    return { lua, sha, keys: this.#keys, argv: this.#argv };
  }

  #addConditions(call: ScriptCall, { all = [], words }: When): void {
    const open = all.map((each) => this.#write(each)).filter((each) => each !== NONE);
    if (open.length > 0) this.#argv.push(`?${open.join(" ")}`);
    if (!words) return;
    const each = words.each.map((condition) => (condition ? this.#write(condition) : NONE));
    this.#argv.push(`&${textAt(call, words.of) + 1} ${each.join(" ")}`);
  }

  #write(condition: Condition): string {
    const { call, at, is = "*" } = condition;
    const number = this.#numbers.get(call);
    if (number !== undefined) return `${number} ${at + 1} ${is}`;
    // Its call has answered before this batch.
    return holds(condition) ? NONE : FAILS;
  }
}

/** No condition, or one that holds already. */
const NONE = "0 0 -";
/** There is no such call. */
const FAILS = `${CALLS_MAX + 1} 1 -`;

interface Library {
  lua: string;
  sha: string;
  names: ReadonlyMap<SomeScript, string>;
}

let written: Library | undefined;

/** Written once: by the time the first scripts run, every file that defines one has been read. */
function library(): Library {
  if (written?.names.size !== SCRIPTS.length) {
    const lua = libraryText(SCRIPTS);
    const sha = createHash("sha1").update(lua).digest("hex");
    written = { lua, sha, names: new Map(SCRIPTS.map((script, at) => [script, String(at)])) };
  }
  return written;
}

/**
 * Each script is a function of its own KEYS and ARGV, made when it is first called: to make them all for every batch
 * would cost more than most batches.
 */
function libraryText(scripts: readonly SomeScript[]): string {
  const branches = scripts.map(
    ({ head, body, keys, texts }, at) =>
      `if name == '${at}' then\n${head}\nreturn { ${keys.length}, ${1 + texts.length}, function(KEYS, ARGV)\n${body}\nend } end\n`,
  );
  return `${SHARED}local function find(name)\n${branches.join("")}end\nis_batch = true\n${RUN_BATCH}`;
}

const RUN_BATCH = readFileSync(new URL("./lua/run-batch.lua", import.meta.url), "utf8");
