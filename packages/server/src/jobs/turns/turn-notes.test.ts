import { stores } from "@tenure/testing/stores/stores";
import { Cluster, Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { disarmAll } from "../../../testing/failpoints.js";
import { holdNextAt } from "../../../testing/hold-next.ts";
import { type JobFleet, openJobFleet } from "../../../testing/job-fleet.ts";
import type { App } from "../../app.ts";
import { turnKeys } from "./turn-store.ts";

describe.each(["redis", "redis-cluster"] as const)("a turn, on %s", (kind) => {
  let fleet: JobFleet;
  let client: Redis | Cluster;
  beforeAll(async () => {
    fleet = await openJobFleet(kind);
    const { redisUrl, clusterUrls } = stores();
    client = kind === "redis" ? new Redis(redisUrl) : new Cluster(clusterUrls);
  });
  afterEach(() => disarmAll());
  afterAll(async () => {
    client.disconnect();
    await fleet.stop();
  });

  test("I11: is noted before it is opened, so that a stop in between leaves nothing", async () => {
    const [app] = fleet.apps as [App];
    const speaker = await fleet.session(app);
    const opening = holdNextAt("turn.after-note");
    speaker.submit({ turn: true });
    await opening.reached;
    const session = turnKeys.session(fleet.prefix, speaker.sessionId);
    const turnId = (await client.hget(session, "current_turn_id"))!;
    expect(await client.zscore(turnKeys.open(fleet.prefix), turnId)).not.toBeNull();
    expect(await client.exists(turnKeys.turn(fleet.prefix, turnId))).toBe(0);
    opening.letGo();
  });
});
