import { CLOSE_CODES, type CloseCode, type GoAway } from "@tenure/protocol";
import { type Random, shuffled } from "../kernel/random.ts";

/** Over how long the crowd that leaves a stopping instance spreads its arrival at the others. */
const RETRY_AFTER_MS = 500;

/**
 * Tells a connection that this instance stops and where else to go, and closes it. Each is given another order:
 * with one order for all, the whole crowd would arrive at the first of the others.
 */
export function sendAway(
  link: { send(message: GoAway): void; close(code: CloseCode, reason: string): void },
  { urls, random }: { urls: string[]; random: Random },
): void {
  const reason = "this instance is stopping";
  link.send({
    type: "go_away",
    reason,
    retry_after_ms: RETRY_AFTER_MS,
    urls: shuffled(urls, random),
  });
  link.close(CLOSE_CODES.INSTANCE_STOPPING, reason);
}
