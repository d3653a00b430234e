import { TenureError } from "@tenure/protocol";
import { LINK_LIMITS, type SendOutcome } from "./link.ts";

/** Why nothing was sent, as the error that a caller of a remote method sees. */
export function unsentError(outcome: Exclude<SendOutcome, "sent">): TenureError {
  switch (outcome) {
    case "not_connected":
      return new TenureError("DEPENDENCY_DOWN", {
        dependency: "the server",
        reason: "not connected",
      });
    case "queue_full":
      return new TenureError("QUEUE_FULL", {
        queue: "what waits to be sent to the server, in bytes,",
        limit: LINK_LIMITS.unsentBytesMax,
      });
    case "too_large":
      return new TenureError("PAYLOAD_TOO_LARGE", { limit_bytes: LINK_LIMITS.sendBytesMax });
  }
}
