import type { Clock } from "./clock.ts";
import { atEndOfTick } from "./tick.ts";

/** The items of a batch become the arguments of one script, and Lua's `unpack` takes a few thousand at most. */
const BATCH_MAX = 1_000;

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

/**
 * Collects the calls of one tick of the event loop by key, and runs each key's calls as one batch. Batches of a key may
 * overlap: a call waits for the end of the tick and for nothing else. `run` answers in the order of the items.
 */
export function batchPerTick<Item, Answer>(
  run: (key: string, items: Item[]) => Promise<readonly Answer[]>,
): (key: string, item: Item) => Promise<Answer> {
  let tick: Map<string, Call<Item, Answer>[]> | undefined;

  function flush(): void {
    const batches = tick ?? [];
    tick = undefined;
    runAll(batches, run);
  }

  return (key, item) =>
    new Promise((resolve, reject) => {
      if (!tick) {
        tick = new Map();
        atEndOfTick("batch", flush);
      }
      add(tick, key, { item, resolve, reject });
    });
}

/**
 * As `batchPerTick`, for work that no caller waits for: collects the calls of `pauseMs`. When `signal` aborts, it runs what it has
 * collected at once.
 */
export function batchPerPause<Item, Answer>(
  run: (key: string, items: Item[]) => Promise<readonly Answer[]>,
  { clock, pauseMs, signal }: { clock: Clock; pauseMs: number; signal: AbortSignal },
): (key: string, item: Item) => Promise<Answer> {
  let collected: Map<string, Call<Item, Answer>[]> | undefined;

  async function flushLater(): Promise<void> {
    await clock.sleep(pauseMs, signal);
    const batches = collected ?? [];
    collected = undefined;
    runAll(batches, run);
  }

  return (key, item) =>
    new Promise((resolve, reject) => {
      if (!collected) {
        collected = new Map();
        void flushLater();
      }
      add(collected, key, { item, resolve, reject });
    });
}

function add<Item, Answer>(
  batches: Map<string, Call<Item, Answer>[]>,
  key: string,
  call: Call<Item, Answer>,
): void {
  const calls = batches.get(key);
  if (calls) calls.push(call);
  else batches.set(key, [call]);
}

function runAll<Item, Answer>(
  batches: Iterable<[string, Call<Item, Answer>[]]>,
  run: (key: string, items: Item[]) => Promise<readonly Answer[]>,
): void {
  for (const [key, calls] of batches)
    for (let from = 0; from < calls.length; from += BATCH_MAX)
      void answerAll(calls.slice(from, from + BATCH_MAX), (items) => run(key, items));
}

/**
 * Runs the first call at once and collects the calls that come while it runs, and during `rest` after it: they are the next
 * batch. Without `rest` no timer decides: the slower the store, the larger the batches. `run` answers in the order of the
 * items.
 */
export function batchWhileBusy<Item, Answer>(
  run: (items: Item[]) => Promise<readonly Answer[]>,
  rest?: () => Promise<void>,
): (item: Item) => Promise<Answer> {
  let waiting: Call<Item, Answer>[] = [];
  let isRunning = false;

  async function drain(): Promise<void> {
    isRunning = true;
    while (waiting.length > 0) {
      const calls = waiting.slice(0, BATCH_MAX);
      waiting = waiting.slice(BATCH_MAX);
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
