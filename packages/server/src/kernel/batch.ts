import type { Clock } from "./clock.ts";
import { atEndOfTick } from "./tick.ts";

/** The items of a batch become the arguments of one script, and Lua's `unpack` takes a few thousand at most. */
const BATCH_MAX = 1_000;

/**
 * Collects the calls of one tick of the event loop by key, and runs each key's calls as one batch. Batches of a key may
 * overlap: a call waits for the end of the tick and for nothing else. `run` answers in the order of the items.
 */
export function batchPerTick<Item, Answer>(
  run: (key: string, items: Item[]) => Promise<readonly Answer[]>,
): (key: string, item: Item) => Promise<Answer> {
  const batches = new Batches(run, (flush) => atEndOfTick("batch", flush));
  return (key, item) => {
    const { items, answers } = batches.open(key);
    const at = items.push(item) - 1;
    return answers.then((all) => all[at] as Answer);
  };
}

/** As `batchPerTick`, for calls without an answer: all calls of a batch share its promise. */
export function gatherPerTick<Item>(
  run: (key: string, items: Item[]) => Promise<void>,
): (key: string, item: Item) => Promise<void> {
  return gather(new Batches(run, (flush) => atEndOfTick("batch", flush)));
}

/**
 * As `gatherPerTick`, for work that no caller waits for: collects the calls of `pauseMs`. When `signal` aborts, it runs what it
 * has collected at once.
 */
export function gatherPerPause<Item>(
  run: (key: string, items: Item[]) => Promise<void>,
  { clock, pauseMs, signal }: { clock: Clock; pauseMs: number; signal: AbortSignal },
): (key: string, item: Item) => Promise<void> {
  return gather(new Batches(run, (flush) => void clock.sleep(pauseMs, signal).then(flush)));
}

function gather<Item>(batches: Batches<Item, void>): (key: string, item: Item) => Promise<void> {
  return (key, item) => {
    const { items, answers } = batches.open(key);
    items.push(item);
    return answers;
  };
}

interface Batch<Item, Answers> {
  items: Item[];
  answers: Promise<Answers>;
  run(): void;
}

/** The batches that are collected now, by key. `schedule` runs them all; it is called with the first call. */
class Batches<Item, Answers> {
  readonly #run: (key: string, items: Item[]) => Promise<Answers>;
  readonly #schedule: (flush: () => void) => void;
  #all: Batch<Item, Answers>[] = [];
  /** Of each key the last one: those before it are full. */
  #open = new Map<string, Batch<Item, Answers>>();

  constructor(
    run: (key: string, items: Item[]) => Promise<Answers>,
    schedule: (flush: () => void) => void,
  ) {
    this.#run = run;
    this.#schedule = schedule;
  }

  open(key: string): Batch<Item, Answers> {
    const open = this.#open.get(key);
    if (open && open.items.length < BATCH_MAX) return open;
    if (this.#all.length === 0) this.#schedule(() => this.#flush());
    const items: Item[] = [];
    const { promise: answers, resolve } = withResolve<Answers>();
    const batch = { items, answers, run: () => resolve(this.#answer(key, items)) };
    this.#all.push(batch);
    this.#open.set(key, batch);
    return batch;
  }

  /** Asynchronous, so that a batch that throws rejects its own calls only. */
  async #answer(key: string, items: Item[]): Promise<Answers> {
    return this.#run(key, items);
  }

  #flush(): void {
    const batches = this.#all;
    this.#all = [];
    this.#open = new Map();
    for (const batch of batches) batch.run();
  }
}

function withResolve<T>(): { promise: Promise<T>; resolve: (value: Promise<T>) => void } {
  let resolve!: (value: Promise<T>) => void;
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

interface BatchOptions<Item> {
  rest?: () => Promise<void>;
  /** Bounds a batch beside the number of its items, for instance by bytes. One item may be heavier alone. */
  weightOf?: (item: Item) => number;
  weightMax?: number;
}

/**
 * Runs the first call at once and collects the calls that come while it runs, and during `rest` after it: they are the next
 * batch. Without `rest` no timer decides: the slower the store, the larger the batches. `run` answers in the order of the
 * items.
 */
export function batchWhileBusy<Item, Answer>(
  run: (items: Item[]) => Promise<readonly Answer[]>,
  { rest, weightOf = () => 0, weightMax = 0 }: BatchOptions<Item> = {},
): (item: Item) => Promise<Answer> {
  let waiting: Call<Item, Answer>[] = [];
  let isRunning = false;

  async function drain(): Promise<void> {
    isRunning = true;
    while (waiting.length > 0) {
      const count = countWithin(waiting, weightOf, weightMax);
      const calls = waiting.slice(0, count);
      waiting = waiting.slice(count);
      await answerAll(calls, run);
      await rest?.();
    }
    isRunning = false;
  }

  return (item) =>
    new Promise((resolve, reject) => {
      waiting.push({ item, resolve, reject });
      if (!isRunning) void drain();
    });
}

/** How many of the first calls fit in a batch; at least one. */
function countWithin<Item>(
  calls: readonly { item: Item }[],
  weightOf: (item: Item) => number,
  weightMax: number,
): number {
  let weight = 0;
  for (const [at, { item }] of calls.entries()) {
    weight += weightOf(item);
    if (at === BATCH_MAX || (at > 0 && weight > weightMax)) return at;
  }
  return calls.length;
}

interface Call<Item, Answer> {
  item: Item;
  resolve: (answer: Answer) => void;
  reject: (error: unknown) => void;
}

/** Runs a batch and resolves its calls in order. An error rejects all of them. */
async function answerAll<Item, Answer>(
  calls: readonly Call<Item, Answer>[],
  run: (items: Item[]) => Promise<readonly Answer[]>,
): Promise<void> {
  try {
    const answers = await run(calls.map(({ item }) => item));
    for (const [index, { resolve }] of calls.entries()) resolve(answers[index] as Answer);
  } catch (error) {
    for (const { reject } of calls) reject(error);
  }
}
