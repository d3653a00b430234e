import type { Timeline } from "./timeline.ts";

/** Which way something goes between a node and its instance. */
export type Way = "up" | "down";

export interface Wire {
  /** Arrives in order; late while the way is cut; never once the wire is closed on the side it goes to. */
  send(way: Way, arrive: () => void): void;
  /** This side is gone now; the other side hears of it when the word can get through. */
  close(way: Way): void;
}

const LOOK_AGAIN_MS = 250;

/**
 * One connection, as TCP gives it: nothing is lost or overtaken while it stands, but a cut holds back what was sent,
 * and then it all comes at once. Whoever gives up first closes.
 */
export function createWire({
  timeline,
  latencyMs,
  isCut,
  closed,
}: {
  timeline: Timeline;
  latencyMs: () => number;
  isCut: (way: Way) => boolean;
  /** The other end is gone. Told to the side at the end of this way. */
  closed: (way: Way) => void;
}): Wire {
  const lastMs = { up: 0, down: 0 };
  const isOpen = { up: true, down: true };
  const held: Record<Way, Array<() => void>> = { up: [], down: [] };

  function send(way: Way, arrive: () => void): void {
    const atMs = Math.max(lastMs[way], timeline.monotonicMs() + latencyMs());
    lastMs[way] = atMs;
    timeline.after(atMs - timeline.monotonicMs(), () => {
      if (isCut(way) || held[way].length > 0) hold(way, arrive);
      else if (isOpen[way]) arrive();
    });
  }

  function hold(way: Way, arrive: () => void): void {
    held[way].push(arrive);
    if (held[way].length === 1) timeline.after(LOOK_AGAIN_MS, () => flush(way));
  }

  function flush(way: Way): void {
    if (!isOpen[way]) return;
    if (isCut(way)) {
      timeline.after(LOOK_AGAIN_MS, () => flush(way));
      return;
    }
    for (const arrive of held[way].splice(0)) if (isOpen[way]) arrive();
  }

  return {
    send,
    close(way) {
      // Nothing reaches whoever has left: that is the end of the way that leads to it.
      isOpen[way === "up" ? "down" : "up"] = false;
      send(way, () => {
        isOpen[way] = false;
        closed(way);
      });
    },
  };
}
