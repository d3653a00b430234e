import { describe, expect } from "vitest";
import { nextTick } from "../../testing/connection-fixture.ts";
import type { Peer, PeerSocket } from "../../testing/peer.ts";
import {
  accepted,
  type Client,
  JOBS,
  reconnect,
  refusal,
  succeeded,
  test,
  welcome,
} from "../../testing/session-fixture.ts";
import type { Turn } from "./session.ts";

const [ONE, TWO, THREE] = JOBS;
const TURN = "00000000-0000-7000-8000-0000000000aa";
const NEXT_TURN = "00000000-0000-7000-8000-0000000000bb";
const finalized = (turn_id: string) => ({ type: "turn_finalized", turn_id, reason: "manual" });

/** Submits a job of the turn and ignores its result. */
function submitIn(turn: Turn, requestId: string, more: object = {}): void {
  turn.submit({ pool: "asr", payload: requestId, requestId, ...more }).catch(() => {});
}

const received = async (socket: PeerSocket, count: number) => {
  const messages = [];
  for (let n = 0; n < count; n++) messages.push(await socket.receive());
  return messages.map(({ type, request_id, turn, finalize, reason }) =>
    type === "job_submit"
      ? { request_id, turn, ...(finalize !== undefined && { finalize }) }
      : { type, reason },
  );
};

describe("a turn", () => {
  test("marks its jobs, and gets its id from the server", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const turn = client.session.turn();
    const job = turn.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    expect(await received(socket, 1)).toEqual([{ request_id: "r-1", turn: true }]);
    socket.send(accepted("r-1", ONE, { turn_id: TURN }), succeeded("r-1", ONE));
    await job;

    expect(turn.id).toBe(TURN);
    expect(turn.ended).toBeUndefined();
  });

  test("sends its jobs without waiting for one another", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const turn = client.session.turn();
    for (const id of ["r-1", "r-2", "r-3"]) submitIn(turn, id);

    expect(await received(socket, 3)).toHaveLength(3);
  });

  test("ends after its jobs are accepted, and the next begins after that end", async ({
    peer,
    open,
  }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const turn = client.session.turn();
    submitIn(turn, "r-1");
    const over = turn.finalize("manual");
    const next = client.session.turn();
    submitIn(next, "r-2");
    expect(await received(socket, 1)).toEqual([{ request_id: "r-1", turn: true }]);
    await nextTick();
    expect(socket.unread()).toEqual([]);

    socket.send(accepted("r-1", ONE, { turn_id: TURN }));
    expect(await received(socket, 1)).toEqual([{ type: "turn_finalize", reason: "manual" }]);
    await nextTick();
    expect(socket.unread()).toEqual([]);

    socket.send(finalized(TURN));
    await over;
    expect(turn.ended).toBe("manual");
    expect(await received(socket, 1)).toEqual([{ request_id: "r-2", turn: true }]);
  });

  test("may be ended by its last job, which waits for the others", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const turn = client.session.turn();
    submitIn(turn, "r-1");
    submitIn(turn, "r-2", { finalize: "manual" });
    const next = client.session.turn();
    submitIn(next, "r-3");
    expect(await received(socket, 1)).toEqual([{ request_id: "r-1", turn: true }]);
    socket.send(accepted("r-1", ONE, { turn_id: TURN }));
    expect(await received(socket, 1)).toEqual([
      { request_id: "r-2", turn: true, finalize: "manual" },
    ]);
    await nextTick();
    expect(socket.unread()).toEqual([]);

    socket.send(accepted("r-2", TWO, { turn_id: TURN }));
    expect(await received(socket, 1)).toEqual([{ request_id: "r-3", turn: true }]);
    expect(turn.ended).toBe("manual");
    socket.send(accepted("r-3", THREE, { turn_id: NEXT_TURN }));
  });

  test("takes no job after its end", async ({ peer, open }) => {
    const client = open();
    await welcome(peer, client);
    const turn = client.session.turn();
    await turn.finalize();

    await expect(turn.submit({ pool: "asr", payload: 1 })).rejects.toMatchObject({
      code: "CONFLICT",
    });
  });

  test("without a sent job ends without a message", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    await client.session.turn().finalize();
    submitIn(client.session.turn(), "r-1");

    expect(await received(socket, 1)).toEqual([{ request_id: "r-1", turn: true }]);
  });

  test("is ended by the next turn", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const turn = client.session.turn();
    submitIn(turn, "r-1");
    await socket.receive();
    socket.send(accepted("r-1", ONE, { turn_id: TURN }));
    submitIn(client.session.turn(), "r-2");

    expect(await received(socket, 1)).toEqual([{ type: "turn_finalize", reason: "manual" }]);
    socket.send(finalized(TURN));
    expect(await received(socket, 1)).toEqual([{ request_id: "r-2", turn: true }]);
  });

  test("may be ended by the server, after a pause", async ({ peer, open }) => {
    const client = open({ turnPauseMs: 500 });
    const socket = await welcome(peer, client);
    const turn = client.session.turn();
    submitIn(turn, "r-1");
    await socket.receive();
    socket.send(accepted("r-1", ONE, { turn_id: TURN }));
    socket.send({ ...finalized(TURN), reason: "timeout" });
    await turn.finalize();

    expect(turn.ended).toBe("timeout");
  });

  test("that the server does not know has ended", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const turn = client.session.turn();
    submitIn(turn, "r-1");
    await socket.receive();
    socket.send(accepted("r-1", ONE, { turn_id: TURN }));
    const over = turn.finalize();
    await socket.receive();
    socket.send(refusal("NOT_FOUND", {}));

    await over;
    expect(client.problems.rest()).toEqual([]);
  });
});

describe("a turn whose connection or jobs fail", () => {
  test("keeps its order over a reconnect", async ({ peer, clock, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const turn = client.session.turn();
    submitIn(turn, "r-1");
    submitIn(turn, "r-2", { finalize: "manual" });
    submitIn(client.session.turn(), "r-3");
    await socket.receive();
    const again = await reconnect(peer, client, { socket, clock });

    expect(await received(again, 1)).toEqual([{ request_id: "r-1", turn: true }]);
    again.send(accepted("r-1", ONE, { turn_id: TURN }));
    expect(await received(again, 1)).toMatchObject([{ request_id: "r-2", finalize: "manual" }]);
    again.send(accepted("r-2", TWO, { turn_id: TURN }));
    expect(await received(again, 1)).toEqual([{ request_id: "r-3", turn: true }]);
  });

  test("sends its end again on a new connection", async ({ peer, clock, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const turn = client.session.turn();
    const job = turn.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    await socket.receive();
    socket.send(accepted("r-1", ONE, { turn_id: TURN }), succeeded("r-1", ONE));
    await job;
    const over = turn.finalize();
    await socket.receive();
    const again = await reconnect(peer, client, { socket, clock });

    expect(await received(again, 1)).toEqual([{ type: "turn_finalize", reason: "manual" }]);
    again.send(finalized(TURN));
    await over;
  });

  test("does not let a refused job land in the next turn", async ({ peer, clock, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const turn = client.session.turn();
    submitIn(turn, "r-1");
    submitIn(turn, "r-2");
    void turn.finalize();
    await received(socket, 2);
    const timers = clock.timers;
    socket.send(accepted("r-2", TWO, { turn_id: TURN }));
    socket.send(refusal("DEPENDENCY_DOWN", { request_id: "r-1", retryable: true }));
    while (clock.timers === timers) await nextTick();
    expect(socket.unread()).toEqual([]);
    clock.advance(100);

    expect(await received(socket, 1)).toEqual([{ request_id: "r-1", turn: true }]);
    socket.send(accepted("r-1", ONE, { turn_id: TURN }));
    expect(await received(socket, 1)).toEqual([{ type: "turn_finalize", reason: "manual" }]);
  });

  test("ends also when its last job is refused", async ({ peer, open }) => {
    const client = open();
    const socket = await welcome(peer, client);
    const turn = client.session.turn();
    submitIn(turn, "r-1");
    submitIn(turn, "r-2", { finalize: "manual" });
    await socket.receive();
    socket.send(accepted("r-1", ONE, { turn_id: TURN }));
    await socket.receive();
    socket.send(refusal("PAYLOAD_TOO_LARGE", { request_id: "r-2" }));

    expect(await received(socket, 1)).toEqual([{ type: "turn_finalize", reason: "manual" }]);
  });
});

describe("the end of a turn that the server refuses for now", () => {
  /** A turn whose only job is done: nothing else is open. */
  async function lastWord(client: Client, peer: Peer) {
    const socket = await welcome(peer, client);
    const turn = client.session.turn();
    const job = turn.submit({ pool: "asr", payload: 1, requestId: "r-1" });
    await socket.receive();
    socket.send(accepted("r-1", ONE, { turn_id: TURN }), succeeded("r-1", ONE));
    await job;
    await socket.receive(); // its acknowledgement
    const over = turn.finalize();
    const { request_id } = await socket.receive();
    return { socket, over, request_id };
  }
  const away = { retryable: true };

  test("is retried, also when no job is open", async ({ clock, peer, open }) => {
    const client = open();
    const { socket, over, request_id } = await lastWord(client, peer);
    for (let times = 0; times < 3; times++) {
      // The second one is reported, so the first has been read by then.
      socket.send(refusal("DEPENDENCY_DOWN", { ...away, request_id }), { type: `mark-${times}` });
      await client.problems.next();
      clock.advance(2_000);
      expect(await socket.receive()).toEqual({
        type: "turn_finalize",
        reason: "manual",
        request_id,
      });
    }
    socket.send(finalized(TURN));
    await over;
  });

  test("is retried when the error of an older server names no request", async ({
    clock,
    peer,
    open,
  }) => {
    const client = open();
    const { socket, over } = await lastWord(client, peer);
    socket.send(refusal("DEPENDENCY_DOWN", away));
    await client.problems.next();
    clock.advance(5_000);
    expect(await socket.receive()).toMatchObject({ type: "turn_finalize" });
    socket.send(refusal("NOT_FOUND", {}));
    await over;
  });

  test("rejects its callers after a minute without an answer, and is still retried", async ({
    clock,
    peer,
    open,
  }) => {
    const client = open();
    const { socket, over } = await lastWord(client, peer);
    clock.advance(60_000);
    await expect(over).rejects.toMatchObject({ code: "DEPENDENCY_DOWN" });
    await socket.receive();
    expect(socket.unread().every(({ type }) => type === "turn_finalize")).toBe(true);
  });

  test("is done when the server knows no turn", async ({ peer, open }) => {
    const client = open();
    const { socket, over, request_id } = await lastWord(client, peer);
    socket.send(refusal("NOT_FOUND", { request_id }));
    await over;
  });
});
