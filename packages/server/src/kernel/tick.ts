const batches: (() => void)[] = [];
const sends: (() => void)[] = [];
let isScheduled = false;

/**
 * Schedules a callback for the end of this tick of the event loop: first all of `batch`, then all of `send`.
 *
 * A batch that is closed usually starts a command, which is itself collected and sent. With a `setImmediate` each, the
 * send would always be one tick later than the batch: another round of the loop, another write and wake-up.
 */
export function atEndOfTick(stage: "batch" | "send", callback: () => void): void {
  (stage === "batch" ? batches : sends).push(callback);
  schedule();
}

function schedule(): void {
  if (isScheduled) return;
  isScheduled = true;
  setImmediate(endTick);
}

/** Callbacks may schedule more work for the same tick. A throwing callback does not skip the rest. */
function endTick(): void {
  try {
    for (let callback = next(); callback; callback = next()) callback();
  } finally {
    isScheduled = false;
    if (batches.length + sends.length > 0) schedule();
  }
}

const next = (): (() => void) | undefined => batches.shift() ?? sends.shift();
