/** Counts frames per second. */
export interface FramePace {
  count(): void;
  /** Whether the limit of this second is used up. */
  exceeded(): boolean;
}

/** `onChange` is called when the limit is reached, and when reading may go on. */
export function createFramePace(framesPerSecondMax: number, onChange: () => void): FramePace {
  let secondBeganMs = 0;
  let frames = 0;
  const restMs = () => secondBeganMs + 1_000 - performance.now();
  const exceeded = () => frames >= framesPerSecondMax && restMs() > 0;

  /** Checks again after the timer: on a busy event loop it may fire early, and no other event would resume the reading. */
  function resumeWhenOver(): void {
    if (exceeded()) setTimeout(resumeWhenOver, restMs()).unref();
    else onChange();
  }

  return {
    exceeded,
    count() {
      if (restMs() <= 0) {
        secondBeganMs = performance.now();
        frames = 0;
      }
      if (++frames !== framesPerSecondMax) return;
      onChange();
      resumeWhenOver();
    },
  };
}
