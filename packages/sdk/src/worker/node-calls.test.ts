import { TenureError } from "@tenure/protocol";
import { describe, expect } from "vitest";
import { admit, type NodeFixtures, test } from "../../testing/node-fixture.ts";

const DEPLOYMENT = "00000000-0000-7000-8000-00000000000d";
const TIME = "2026-01-01T00:00:00.000Z";
const candidates = [{ id: DEPLOYMENT, generation: 3 }];
const outcomeOf = (call: Promise<unknown>) =>
  call.then((result) => ({ result })).catch((error: unknown) => ({ error }));

describe("a call to the server", () => {
  test("is answered by id, in any order", async ({ peer, clock, join }) => {
    const node = join();
    const socket = await admit(peer, node);
    const timers = clock.timers;
    const claim = node.connection.call("deployment.claim", { candidates });
    const release = node.connection.call("deployment.release", { addresses: ["gone"] });
    const [first, second] = [await socket.receive(), await socket.receive()];
    expect(first).toMatchObject({ method: "deployment.claim", params: { candidates } });

    socket.send({ type: "response", id: second.id, result: { released: [] } });
    socket.send({ type: "response", id: first.id, result: { id: DEPLOYMENT, generation: 4 } });
    expect(await claim).toEqual({ id: DEPLOYMENT, generation: 4 });
    expect(await release).toEqual({ released: [] });
    expect(clock.timers).toBe(timers);
  });

  test("reads a list item by item: a bad one is named and skipped", async ({ peer, join }) => {
    const node = join();
    const socket = await admit(peer, node);
    const good = {
      ...{
        id: DEPLOYMENT,
        name: "web",
        package_name: "web",
        package_version: "1.0.0",
        command: "",
      },
      ...{ type: "deployment", address: "", enabled: true, selector: {}, lost_after_ms: 0 },
      ...{ generation: 1, revision: 1, created_at: TIME, updated_at: TIME },
    };
    const bad = { ...good, id: DEPLOYMENT.replace(/d$/, "e"), lost_after_ms: -1 };
    const answer = { revision: "r", answer: "full", removed: [], resource_usage: {} };
    const list = node.connection.call("deployment.list", {});
    const { id } = await socket.receive();
    socket.send({ type: "response", id, result: { ...answer, items: [bad, 7, good] } });
    expect(await list).toMatchObject({
      items: [{ id: DEPLOYMENT }],
      skipped: [{ id: bad.id, reason: expect.stringContaining("lost_after_ms") }],
    });
    const members = node.connection.call("member.list", {});
    const asked = await socket.receive();
    const result = { seq: 1, view: "ready", members: [{ address: "lost" }] };
    socket.send({ type: "response", id: asked.id, result });
    expect(await members).toMatchObject({ members: [] });
  });

  test("throws the error of the server", async ({ peer, join }) => {
    const node = join();
    const socket = await admit(peer, node);
    const outcome = outcomeOf(node.connection.call("deployment.claim", { candidates }));
    const { id } = await socket.receive();
    const error = { code: "ERR_CLAIM_CONFLICT", message: "none free", retryable: false };
    socket.send({ type: "response", id, error });

    const thrown = (await outcome) as { error: TenureError };
    expect(thrown.error).toBeInstanceOf(TenureError);
    expect(thrown.error).toMatchObject({ code: "ERR_CLAIM_CONFLICT", message: "none free" });
  });

  test("has a time limit, its own or the connection's", async ({ peer, clock, join }) => {
    const node = join({ callTimeoutMs: 3_000 });
    const socket = await admit(peer, node);
    const short = outcomeOf(node.connection.call("member.list", {}, { timeoutMs: 500 }));
    const usual = outcomeOf(node.connection.call("member.list", {}));
    const { id } = await socket.receive();

    clock.advance(500);
    expect(await short).toMatchObject({
      error: { code: "DEPENDENCY_DOWN", details: { reason: "no answer to member.list in 500 ms" } },
    });
    clock.advance(2_499);
    // Too late, and not for the one that still waits.
    socket.send({ type: "response", id, result: { seq: 1, view: "ready", members: [] } });
    clock.advance(1);
    expect(await usual).toMatchObject({
      error: { details: { reason: "no answer to member.list in 3000 ms" } },
    });
  });

  test("ends with the connection", async ({ peer, join }) => {
    const node = join();
    const socket = await admit(peer, node);
    const outcome = outcomeOf(node.connection.call("member.list", {}));
    await socket.receive();
    socket.raw.terminate();

    expect(await outcome).toMatchObject({ error: { code: "DEPENDENCY_DOWN", retryable: true } });
  });

  test("is refused at once without a connection", async ({ join }) => {
    const { connection } = join();

    expect(await outcomeOf(connection.call("member.list", {}))).toMatchObject({
      error: { code: "DEPENDENCY_DOWN", details: { reason: "not connected" } },
    });
  });

  test("is refused when it is larger than a frame may be", async ({ peer, join }) => {
    const node = join();
    await admit(peer, node);
    const addresses = ["x".repeat(1024 * 1024)];

    expect(
      await outcomeOf(node.connection.call("deployment.release", { addresses })),
    ).toMatchObject({ error: { code: "PAYLOAD_TOO_LARGE" } });
  });

  test("does not take an answer that it cannot read", async ({ peer, join }) => {
    const node = join();
    const socket = await admit(peer, node);
    const outcome = outcomeOf(node.connection.call("member.list", {}));
    const { id } = await socket.receive();
    socket.send({ type: "response", id, result: { seq: "many", view: "ready", members: [] } });

    expect(await outcome).toMatchObject({ error: { code: "INVALID_MESSAGE" } });
  });

  test("is one of at most 256 that wait", async ({ peer, join }) => {
    const node = join();
    await admit(peer, node);
    const calls = Array.from({ length: 257 }, () =>
      outcomeOf(node.connection.call("member.list", {})),
    );

    expect(await calls[256]).toMatchObject({ error: { code: "QUEUE_FULL" } });
  });

  test("is not answered by a response with an unknown id", async ({ peer, join }) => {
    const node = join();
    const socket = await admit(peer, node);
    const outcome = outcomeOf(node.connection.call("member.list", {}));
    const { id } = await socket.receive();
    socket.send({ type: "response", id: 999 }, { type: "response", id: String(id) });
    const error = { code: "FORBIDDEN", message: "the real one", retryable: false };
    socket.send({ type: "response", id, error });

    expect(await outcome).toMatchObject({ error: { message: "the real one" } });
  });
});

describe("a call of the server", () => {
  const restart = { type: "request", id: "q-1", method: "deployment.restart" };
  const params = { deployment_id: DEPLOYMENT };

  test("is answered with what the node returns", async ({ peer, join }) => {
    const asked: unknown[] = [];
    const node = join({
      handlers: {
        async "log.read"(selection, { id }) {
          asked.push(selection, id);
          return { lines: ["hello"], next: "8" };
        },
      },
    });
    const socket = await admit(peer, node);
    socket.send({ type: "request", id: 5, method: "log.read", params });

    expect(await socket.receive()).toEqual({
      type: "response",
      id: 5,
      result: { lines: ["hello"], next: "8" },
    });
    expect(asked).toEqual([params, 5]);
  });

  test("is answered with the error that the node throws", async ({ peer, join }) => {
    const node = join({
      handlers: {
        "deployment.restart"() {
          throw new TenureError("NOT_FOUND", { what: "deployment", id: DEPLOYMENT });
        },
      },
    });
    const socket = await admit(peer, node);
    socket.send({ ...restart, params });

    expect(await socket.receive()).toMatchObject({ id: "q-1", error: { code: "NOT_FOUND" } });
    expect(node.problems.rest()).toEqual([]);
  });

  test("hides an unexpected error from the caller, and reports it here", async ({ peer, join }) => {
    const node = join({
      handlers: { "deployment.restart": () => Promise.reject(new Error("password=SECRET")) },
    });
    const socket = await admit(peer, node);
    socket.send({ ...restart, params });

    const answer = await socket.receive();
    expect(answer).toMatchObject({ id: "q-1", error: { code: "INTERNAL" } });
    expect(JSON.stringify(answer)).not.toContain("SECRET");
    expect(String((await node.problems.next()).cause)).toContain("SECRET");
  });

  test.for([
    ["has no handler", { ...restart, params }, "NOT_FOUND"],
    [
      "this version does not know",
      { ...restart, method: "node.explode", params },
      "INVALID_MESSAGE",
    ],
    ["has wrong parameters", { ...restart, params: { deployment_id: 7 } }, "INVALID_MESSAGE"],
  ] as const)("that %s is not left waiting", async ([, request, code], { peer, join }) => {
    const socket = await admit(peer, join());
    socket.send(request);

    expect(await socket.receive()).toMatchObject({
      type: "response",
      id: "q-1",
      error: { code },
    });
  });

  test("whose answer is too large for a frame gets an error", async ({ peer, join }) => {
    const lines = Array.from({ length: 2_000 }, () => "x".repeat(1_000));
    const node = join({ handlers: { "log.read": () => ({ lines, next: "0" }) } });
    const socket = await admit(peer, node);
    socket.send({ type: "request", id: 5, method: "log.read", params });

    expect(await socket.receive()).toMatchObject({
      id: 5,
      error: { code: "PAYLOAD_TOO_LARGE" },
    });
  });

  test("ends with its connection, and is not answered on the next one", async ({
    peer,
    clock,
    join,
  }) => {
    const { node, socket, finish, aborted } = await followed({ peer, join });
    socket.raw.terminate();
    const { retryInMs } = await node.downs.next();
    expect(aborted()).toBe(true);

    clock.advance(retryInMs);
    const next = await admit(peer, node);
    finish();
    next.send({ ...restart, params });
    expect(await next.receive()).toMatchObject({ id: "q-1" });
  });

  test("lasts as long as its connection", async ({ peer, join }) => {
    const { socket, finish, aborted } = await followed({ peer, join });
    expect(aborted()).toBe(false);
    finish();

    expect(await socket.receive()).toEqual({ type: "response", id: 5, result: {} });
  });

  /** A node that was asked to follow a log, and has not answered yet. */
  async function followed({ peer, join }: Pick<NodeFixtures, "peer" | "join">) {
    let finish: () => void = () => {};
    let signal: AbortSignal | undefined;
    let began: () => void = () => {};
    const beginning = new Promise<void>((resolve) => {
      began = resolve;
    });
    const node = join({
      handlers: {
        "log.follow": (_, context) => {
          signal = context.signal;
          began();
          return new Promise((resolve) => {
            finish = () => resolve({});
          });
        },
      },
    });
    const socket = await admit(peer, node);
    socket.send({ type: "request", id: 5, method: "log.follow", params });
    await beginning;
    return { node, socket, finish: () => finish(), aborted: () => signal?.aborted };
  }
});
