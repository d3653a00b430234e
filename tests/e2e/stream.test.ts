import type { StreamItem } from "@tenure/protocol";
import { followStream } from "@tenure/sdk";
import { type RunningServer, startServer } from "@tenure/testing/fleet/running-server";
import { startTenure } from "@tenure/testing/processes/process";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startNode, untilReady } from "../prove/fleet.ts";

describe("what happens, as it happens", () => {
  let server: RunningServer;
  beforeAll(async () => {
    server = await startServer({ dataDir: true });
  });
  afterAll(() => server.stop());

  test("a node that comes and goes is on the stream, and so are the events of it", async () => {
    const items: StreamItem[] = [];
    const stopping = new AbortController();
    const following = follow(items, server.url, stopping.signal);
    // What happened before it was open is not in it.
    const isOpen = async () => {
      await comeAndGo(server.url);
      return items.length > 0;
    };
    await until(isOpen, { everyMs: 100, what: "an open stream" });
    const node = startNode([server.url]);
    await untilReady([node]);
    const { address } = node.key;
    const has = (fits: (item: StreamItem) => boolean, what: string) =>
      until(() => items.some(fits), { what: `${what} on the stream` });
    const online = (item: StreamItem, is: boolean) =>
      item.topic === "nodes" &&
      item.id === address &&
      (item.item as { online: boolean } | undefined)?.online === is;
    const told = ({ topic, item }: StreamItem, event: string) => {
      const happened = item as { event: string; subject?: string };
      return topic === "events" && happened.event === event && happened.subject === address;
    };

    await has((item) => online(item, true), "the node");
    await has((item) => told(item, "node.joined"), "its joining");
    await node.connection.close();
    await has((item) => online(item, false), "its leaving");
    await has((item) => told(item, "node.left"), "the event of it");
    stopping.abort();
    await following;
  });

  test("tenure events -f prints what happens from now on", async () => {
    const command = startTenure([
      "events",
      "-f",
      "-n",
      "1",
      "--event",
      "node.joined",
      "--url",
      server.url,
    ]);
    const prompt = async () => {
      await comeAndGo(server.url);
      return command.stdout().includes("node.joined");
    };
    await until(prompt, { everyMs: 200, what: "an event in the command's output" });
    expect(command.stdout()).toMatch(/joined/);
    await command.kill9();
  });
});

async function comeAndGo(url: string): Promise<void> {
  const node = startNode([url]);
  await untilReady([node]);
  await node.connection.close();
}

async function follow(items: StreamItem[], url: string, signal: AbortSignal): Promise<void> {
  try {
    for await (const item of followStream({ url, signal })) items.push(item);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}
