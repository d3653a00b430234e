import { CLOSE_CODES, type CloseCode, type GoAway } from "@tenure/protocol";

/** Over how long the crowd that leaves a stopping instance spreads its arrival at the others. */
const RETRY_AFTER_MS = 500;

/** Tells a connection that this instance stops and where else to go, and closes it. */
export function sendAway(
  link: { send(message: GoAway): void; close(code: CloseCode, reason: string): void },
  urls: string[],
): void {
  const reason = "this instance is stopping";
  link.send({ type: "go_away", reason, retry_after_ms: RETRY_AFTER_MS, urls });
  link.close(CLOSE_CODES.INSTANCE_STOPPING, reason);
}
