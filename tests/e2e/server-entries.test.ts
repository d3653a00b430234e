import { Session, Worker } from "@tenure/sdk";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { freePort } from "@tenure/testing/processes/free-port";
import { stores } from "@tenure/testing/stores/stores";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";

const FIRST = 2_000;
const MORE = 10_000;
const AT_ONCE = 64;
/** Buffers of sockets and of the stores' clients come and go. What keeps an entry for each job has `MORE` of them. */
const SLACK = MORE / 4;

let server: RunningServer;
let inspector: Inspector;
beforeAll(async () => {
  const port = await freePort();
  const env = {
    ...storeSettings({ redisUrl: stores().redisUrl }),
    NODE_OPTIONS: `--inspect=127.0.0.1:${port}`,
  };
  server = await startServer({ env });
  inspector = await inspect(port);
}, 120_000);
afterAll(async () => {
  inspector.close();
  await server.kill9();
});

test("the memory of a server does not depend on how many jobs it has ended", async () => {
  const worker = new Worker({
    url: server.url,
    pools: ["p"],
    capacity: AT_ONCE,
    run: async () => ({ done: true }),
  });
  const session = new Session({ url: server.url });
  const run = async (jobs: number) => {
    let left = jobs;
    const caller = async () => {
      while (left-- > 0) await session.submit({ pool: "p", payload: 1 });
    };
    await Promise.all(Array.from({ length: AT_ONCE }, caller));
  };
  await run(FIRST);
  const before = await inspector.entries();
  await run(MORE);
  // What is in flight at the end of a load is gone a moment later.
  const grown = async () => {
    const now = await inspector.entries();
    return {
      maps: now.maps - before.maps,
      sets: now.sets - before.sets,
      arrays: now.arrays - before.arrays,
    };
  };
  const isBounded = async () => Math.max(...Object.values(await grown())) <= SLACK;
  await until(isBounded, { what: "the entries of the first jobs", deadlineMs: 20_000 }).catch(
    () => {},
  );
  const { maps, sets, arrays } = await grown();
  expect(Math.max(maps, sets, arrays), JSON.stringify({ maps, sets, arrays })).toBeLessThanOrEqual(
    SLACK,
  );
  await Promise.all([worker.close(), session.close()]);
}, 180_000);

interface Inspector {
  /** Of all maps, sets and arrays that the process can reach. */
  entries(): Promise<{ maps: number; sets: number; arrays: number }>;
  close(): void;
}

async function inspect(port: number): Promise<Inspector> {
  const [target] = (await (await fetch(`http://127.0.0.1:${port}/json/list`)).json()) as {
    webSocketDebuggerUrl: string;
  }[];
  const socket = new WebSocket(target!.webSocketDebuggerUrl);
  await new Promise((resolve) => socket.once("open", resolve));
  let calls = 0;
  const call = (method: string, params: object) =>
    new Promise<Answer>((resolve) => {
      const id = ++calls;
      const listen = (data: Buffer) => {
        const answer = JSON.parse(data.toString()) as { id: number; result: Answer };
        if (answer.id !== id) return;
        socket.off("message", listen);
        resolve(answer.result);
      };
      socket.on("message", listen);
      socket.send(JSON.stringify({ id, method, params }));
    });

  /** Collects garbage before it looks. */
  async function count(name: string, size: string): Promise<number> {
    const objectGroup = "counted";
    const { result } = await call("Runtime.evaluate", {
      expression: `${name}.prototype`,
      objectGroup,
    });
    const { objects } = await call("Runtime.queryObjects", {
      prototypeObjectId: result!.objectId,
      objectGroup,
    });
    const sum = await call("Runtime.callFunctionOn", {
      objectId: objects!.objectId,
      functionDeclaration: `function () { let sum = 0; for (const one of this) try { sum += ${size} } catch {} return sum }`,
      returnByValue: true,
    });
    await call("Runtime.releaseObjectGroup", { objectGroup });
    return sum.result!.value as number;
  }

  return {
    entries: async () => ({
      maps: await count("Map", sizeOf("Map")),
      sets: await count("Set", sizeOf("Set")),
      arrays: await count("Array", "Array.isArray(one) ? one.length : 0"),
    }),
    close: () => socket.close(),
  };
}

/** A class that extends one of them may have a size of its own; of a prototype this throws. */
const sizeOf = (name: string): string =>
  `Object.getOwnPropertyDescriptor(${name}.prototype, "size").get.call(one)`;

interface Answer {
  result?: { objectId?: string; value?: unknown };
  objects?: { objectId: string };
}
