import { signal } from "@preact/signals";

let aheadMs = 0;

/** The time of the server, updated every second; ages are computed with it. */
export const now = signal(Date.now());

export function startClock(): void {
  setInterval(() => {
    // Updating a hidden page would only use battery.
    if (document.visibilityState === "visible") now.value = Date.now() + aheadMs;
  }, 1_000);
  document.addEventListener("visibilitychange", () => {
    now.value = Date.now() + aheadMs;
  });
}

/** Sets the offset of the server's clock from a time it sent. */
export function syncClock(serverAt: string): void {
  aheadMs = Date.parse(serverAt) - Date.now();
  now.value = Date.now() + aheadMs;
}
