/**
 * Gathers calls while one is under way, and then makes them together.
 *
 * The first call goes out at once, so nobody waits when there is no crowd; whoever comes while it is under
 * way shares the next one. No timer decides: the busier the store, the larger the batches.
 */
export function gather<Item, Answer>(
  together: (items: Item[]) => Promise<Answer[]>,
  { batchMax = 1_000 }: { batchMax?: number } = {},
): (item: Item) => Promise<Answer> {
  interface Waiting {
    item: Item;
    resolve: (answer: Answer) => void;
    reject: (error: unknown) => void;
  }
  let waiting: Waiting[] = [];
  let underWay = false;

  async function run(): Promise<void> {
    underWay = true;
    while (waiting.length > 0) {
      const batch = waiting.slice(0, batchMax);
      waiting = waiting.slice(batchMax);
      try {
        const answers = await together(batch.map(({ item }) => item));
        for (const [index, caller] of batch.entries()) caller.resolve(answers[index] as Answer);
      } catch (error) {
        for (const caller of batch) caller.reject(error);
      }
    }
    underWay = false;
  }

  return (item) =>
    new Promise((resolve, reject) => {
      waiting.push({ item, resolve, reject });
      if (!underWay) void run();
    });
}
