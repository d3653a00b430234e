import { describe, expect, vi } from "vitest";

import {
  accepted,
  JOBS,
  reconnect,
  succeeded,
  test,
  welcome,
} from "../../testing/session-fixture.ts";
import type { JobHandle } from "./job-handle.ts";

const [ONE, TWO, THREE] = JOBS;
const UPDATES = ["updates_on_request"];
const listen = (job: JobHandle) => void job[Symbol.asyncIterator]();

describe("updates_on_request", () => {
  test("asks for states once, when the first reader comes, and again with every resend", async ({
    peer,
    open,
    clock,
  }) => {
    const client = open();
    const early = client.session.submit({ pool: "asr", payload: 1, requestId: "early" });
    early.catch(() => {});
    listen(early);
    const socket = await welcome(peer, client, UPDATES);
    expect(await socket.receive()).toMatchObject({ request_id: "early", updates: true });

    const late = client.session.submit({ pool: "asr", payload: 2, requestId: "late" });
    late.catch(() => {});
    listen(late);
    expect(await socket.receive()).not.toHaveProperty("updates");
    expect(await socket.receive()).toEqual({ type: "job_watch", request_id: "late" });
    const { session } = client;
    const alone = session.submit({ pool: "asr", payload: 3, requestId: "alone" });
    alone.catch(() => {});
    expect(await socket.receive()).not.toHaveProperty("updates");
    socket.send(accepted("alone", ONE));
    await vi.waitFor(() => expect(alone.jobId).toBe(ONE));
    listen(alone);
    listen(alone);
    expect(await socket.receive()).toEqual({
      ...{ type: "job_watch", request_id: "alone", job_id: ONE },
    });
    expect(socket.unread()).toEqual([]);

    const again = await reconnect(peer, client, { socket, clock });
    const resent = [await again.receive(), await again.receive(), await again.receive()];
    // This server grants nothing, and gets the frames of a client without features.
    for (const message of resent) {
      expect(message).toMatchObject({ type: "job_submit", again: true });
      expect(message).not.toHaveProperty("updates");
    }
  });
});

describe("ack_lists", () => {
  const ACKS = ["ack_lists"];
  const ackOf = (job_id: string) => ({ job_id, attempt_id: 1, outcome: "succeeded" });

  test("acknowledges with the next submit, else after 20 ms, and before it closes", async ({
    peer,
    open,
    clock,
  }) => {
    const client = open();
    const { session } = client;
    const submit = (requestId: string) => session.submit({ pool: "asr", payload: 1, requestId });
    const socket = await welcome(peer, client, ACKS);
    const one = submit("one");
    expect(await socket.receive()).not.toHaveProperty("acks");
    socket.send(succeeded("one", ONE));
    await one;
    const two = submit("two");
    expect(await socket.receive()).toMatchObject({ request_id: "two", acks: [ackOf(ONE)] });
    socket.send(succeeded("two", TWO));
    await two;
    clock.advance(20);
    expect(await socket.receive()).toEqual({ type: "acks", acks: [ackOf(TWO)] });
    const three = submit("three");
    expect(await socket.receive()).not.toHaveProperty("acks");
    socket.send(succeeded("three", THREE));
    await three;
    const closed = session.close();
    expect(await socket.receive()).toEqual({ type: "acks", acks: [ackOf(THREE)] });
    expect(await socket.receive()).toEqual({ type: "session_close" });
    socket.raw.close();
    await closed;
  });
});
