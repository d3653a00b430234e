/**
 * Runs `act` for one item at a time. Of the items that come meanwhile only the newest is kept, and runs next: for reports
 * of a state, where a newer one replaces an older one. `act` must not throw.
 */
export function newestOnly<Item>(act: (item: Item) => Promise<void>): (item: Item) => void {
  let isRunning = false;
  let next: { item: Item } | undefined;

  async function run(): Promise<void> {
    isRunning = true;
    while (next) {
      const { item } = next;
      next = undefined;
      await act(item);
    }
    isRunning = false;
  }

  return (item) => {
    next = { item };
    if (!isRunning) void run();
  };
}
