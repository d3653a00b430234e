import type { Clock } from "../kernel/clock.ts";

/** The calls that the sockets of one token may make at this instance: a token bucket. */
export interface CallBudget {
  /** Undefined when a call is available now; otherwise resolves when one is, in the order of the calls. */
  take(): Promise<void> | undefined;
}

/** Unused calls are kept for this long: all agents of a token call at once when they move to this instance. */
const BURST_MS = 2_000;

/** One budget per token, named with its tenant; `perSecondMax` 0 = no limit. */
export function createCallBudgets(
  perSecondMax: number,
  clock: Pick<Clock, "monotonicMs">,
): (token: string) => CallBudget {
  if (perSecondMax === 0) return () => UNLIMITED;
  const budgets = new Map<string, CallBudget>();
  return (token) => {
    const budget = budgets.get(token) ?? createBudget(perSecondMax, clock);
    budgets.set(token, budget);
    return budget;
  };
}

const UNLIMITED: CallBudget = { take: () => undefined };

function createBudget(perSecondMax: number, clock: Pick<Clock, "monotonicMs">): CallBudget {
  const burst = (perSecondMax * BURST_MS) / 1_000;
  let left = burst;
  let filledAtMs = clock.monotonicMs();
  let waiting: (() => void)[] = [];

  function fill(): void {
    const nowMs = clock.monotonicMs();
    left = Math.min(burst, left + ((nowMs - filledAtMs) * perSecondMax) / 1_000);
    filledAtMs = nowMs;
  }

  function serve(): void {
    fill();
    const served = waiting.slice(0, Math.floor(left));
    waiting = waiting.slice(served.length);
    left -= served.length;
    for (const resolve of served) resolve();
    if (waiting.length > 0) serveLater();
  }

  function serveLater(): void {
    setTimeout(serve, Math.max(1, ((1 - left) * 1_000) / perSecondMax)).unref();
  }

  return {
    take() {
      fill();
      if (waiting.length === 0 && left >= 1) {
        left -= 1;
        return undefined;
      }
      if (waiting.length === 0) serveLater();
      return new Promise((resolve) => waiting.push(resolve));
    },
  };
}
