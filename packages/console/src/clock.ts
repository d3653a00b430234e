import { signal } from "@preact/signals";

let aheadMs = 0;

/** The server's time, every second: ages on the page are as old as the server thinks they are. */
export const now = signal(Date.now());

export function startClock(): void {
  setInterval(() => {
    // Nobody reads a hidden page; what changes on it once a second costs a laptop its battery.
    if (document.visibilityState === "visible") now.value = Date.now() + aheadMs;
  }, 1_000);
  document.addEventListener("visibilitychange", () => {
    now.value = Date.now() + aheadMs;
  });
}

/** What the server's clock said at a moment of ours. */
export function compareClocks(serverAt: string): void {
  aheadMs = Date.parse(serverAt) - Date.now();
  now.value = Date.now() + aheadMs;
}
