import { CLOSE_CODES, type CloseCode, type GoAway } from "@tenure/protocol";
import { type Random, shuffled } from "../kernel/random.ts";

/** The time over which the connections of a stopping instance spread their reconnects. */
const RETRY_AFTER_MS = 500;

/**
 * Sends a connection the URLs of the other instances and closes it. Each connection gets another order; with the same order,
 * all of them would arrive at the first instance.
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
