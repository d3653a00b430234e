const REST_MS_PER_ITEM = 0.2;
/** So few are served at once. */
const FEW = 50;
const REST_MS_MAX = 1_000;

/**
 * How long a step over all items rests before the next one, however often it is woken: if each item that comes wakes it, a
 * thousand that come at once would cost a thousand steps over a thousand items.
 */
export const restMs = (items: number): number =>
  items <= FEW ? 0 : Math.min(REST_MS_MAX, items * REST_MS_PER_ITEM);
