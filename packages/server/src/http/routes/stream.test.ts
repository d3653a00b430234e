import { once } from "node:events";
import fastify from "fastify";
import { expect, onTestFinished, test } from "vitest";
import { ANONYMOUS } from "../../access/principal.ts";
import { createStream } from "./stream.ts";

test("a follower whose connection closed before the handler began is not kept", async () => {
  const hub = createStream({ wallMs: () => 0 });
  const app = fastify({ forceCloseConnections: true });
  onTestFinished(() => app.close());
  const answered: Promise<unknown>[] = [];
  // As when the session of the console is read meanwhile.
  app.addHook("preHandler", async (request, reply) => {
    if (request.url === "/gone") {
      request.raw.socket.destroy();
      await once(reply.raw, "close");
    }
  });
  app.get("*", async (request, reply) => {
    const answer = hub.routes[0]!.answer(request, reply, ANONYMOUS);
    answered.push(answer);
    return answer;
  });
  const url = await app.listen({ host: "127.0.0.1", port: 0 });
  const there = await fetch(`${url}/there`);
  expect(hub.scopes()).toHaveLength(1);
  await there.body!.cancel();
  await expect.poll(() => hub.scopes()).toEqual([]);
  await fetch(`${url}/gone`).catch(() => {});
  await expect.poll(() => answered.length).toBe(2);
  await Promise.all(answered);
  expect(hub.scopes()).toEqual([]);
});
