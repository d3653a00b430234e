import { now } from "../clock.ts";
import { exact, relative } from "../model/time.ts";

/** Relative time, with the exact time on hover. */
export function Time({ at }: { at: string }) {
  return (
    <time dateTime={at} title={exact(at)}>
      {relative(Date.parse(at) - now.value)}
    </time>
  );
}
