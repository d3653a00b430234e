import { TenureError } from "@tenure/protocol";
import type { HotStore } from "../store/hot-store.ts";
import type { DeliveryMetrics } from "../telemetry.ts";
import type { Delivery, DeliverySettings, Sent } from "./contract.ts";
import { writeDoorbell } from "./doorbell.ts";
import { openInbox } from "./inbox-lifecycle.ts";
import { sendMessage } from "./inbox-store.ts";

/** Another instance may close the inbox between opening it and writing into it; hardly this often in a row. */
const ATTEMPTS_MAX = 10;

export interface SenderOptions {
  hot: HotStore;
  settings: DeliverySettings;
  telemetry: DeliveryMetrics;
}

/** The first sender opens the inbox, also that of an instance that has not started yet. */
export function createSender({
  hot,
  settings,
  telemetry,
}: SenderOptions): Pick<Delivery, "send" | "sendIf"> {
  const { stream_group: group, stream_maxlen: lengthMax } = settings;

  const sendIf: Delivery["sendIf"] = async (conditions, instanceId, message) => {
    const text = writeDoorbell(message);
    for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
      const sent = await sendMessage(hot, { instanceId, text, lengthMax }, conditions);
      if (sent.outcome === "skipped") return sent;
      if (sent.outcome !== "closed") {
        telemetry.deliveries.inc({ event: sent.outcome === "sent" ? "sent" : "refused" });
        return sent;
      }
      await openInbox(hot, { instanceId, group });
    }
    const reason = `the inbox of ${instanceId} was closed ${ATTEMPTS_MAX} times while sending to it`;
    throw new TenureError("DEPENDENCY_DOWN", { dependency: "redis", reason });
  };

  return {
    sendIf,
    // Without conditions it is never skipped.
    send: async (instanceId, message) => (await sendIf([], instanceId, message)) as Sent,
  };
}
