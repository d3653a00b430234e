import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, test } from "vitest";
import { openServer, type TestDb } from "../../testing/databases.ts";
import { createManualClock } from "../../testing/manual-clock.ts";
import {
  asks,
  commitDone,
  HOLD_TTL_MS,
  IN_DEFAULT,
  LEASE_TTL_MS,
  RULES,
} from "../../testing/nonces.ts";
import { silentLog } from "../kernel/log.ts";
import { systemRandom } from "../kernel/random.ts";
import { createTelemetry } from "../telemetry.ts";
import { createNonces } from "./nonces.ts";
import { ownerOf, type Peer } from "./signer-routing.ts";
import { createTimeline } from "./timeline.ts";

let store: TestDb;
beforeAll(async () => {
  store = await openServer();
});
afterAll(() => store.close());

test("an idle instance in Worker-Queue mode expires the holds of a dead peer's signers", async () => {
  const both: Peer[] = ["a", "b"].map((id) => ({ instance_id: id, url: "http://127.0.0.1:9" }));
  const signerOf = (owner: string) =>
    Array.from({ length: 50 }, (_, k) => `s${k}`).find((s) => ownerOf(s, ["a", "b"]) === owner)!;
  let live = both;
  const clock = createManualClock();
  const quiet = () => {};
  const nonces = createNonces({
    mode: "worker_queue",
    ...{ instanceId: "a", bootId: "1", leaseTtlMs: LEASE_TTL_MS, queueMax: 10, rules: RULES },
    ...{ db: store.db, clock, random: systemRandom, log: silentLog, peerToken: "" },
    timeline: createTimeline({ db: store.db, witnesses: [], log: silentLog, onStatus: quiet }),
    liveInstances: async () => live,
    telemetry: createTelemetry(),
    events: { takenOver: quiet, fenced: quiet, moved: quiet },
  });
  // The only request of this instance: from now on it knows both instances.
  await nonces.allocate(
    { signer: signerOf("a"), requestId: "r" },
    { forwarded: false, access: IN_DEFAULT },
  );
  const signer = signerOf("b");
  await commitDone(store.db, { signer, ownerNode: "b/1", asks: asks() });
  live = both.slice(0, 1);
  await store.advance(HOLD_TTL_MS + 1);
  nonces.start();
  const isExpired = async () => {
    clock.advance(2_000);
    const [row] = await nonces.listNonces({
      signer,
      tenant: "*",
      status: undefined,
      fromNonce: 0,
      limit: 1,
    });
    return row?.status === "QUARANTINED";
  };
  await until(isExpired, { what: "the hold to expire", deadlineMs: 10_000 });
  await nonces.stop();
});
