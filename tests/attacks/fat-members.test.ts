import { randomUUID } from "node:crypto";
import { createNodeConnection, listMembers } from "@tenure/sdk";
import { deploymentsOf } from "@tenure/testing/fleet/deployments";
import { createTestNodeKey } from "@tenure/testing/fleet/node-key";
import { type RunningUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import type { RawNode } from "@tenure/testing/fleet/raw-node";
import { until } from "@tenure/testing/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { attackServerOnPostgres } from "./on-postgres.ts";
import { joinNode, type RawUnit, rawUnit } from "./raw-unit.ts";
import type { AttackedServer } from "./scene.ts";

/** Together longer than a frame that the reader in this test takes. */
const FAT_UNITS = 48;
const FRAME_BYTES_MAX = 600 * 1_024;

let server: AttackedServer;
beforeAll(async () => {
  server = await attackServerOnPostgres([
    { name: "admin", role: "admin" },
    { name: "node", role: "node" },
    { name: "few", role: "node", scope: { nodes_max: 2 } },
    { name: "labelled", role: "node", scope: { labels: { zone: "x".repeat(250) } } },
  ]);
});
afterAll(async () => {
  await server.stop();
});

const labelsOf = (count: number, length: number): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, n) => [`l${n}`, "x".repeat(length)]));

test("node-units cannot make the members too long for the others to read", async () => {
  const fat: Record<string, string>[] = [
    labelsOf(3_000, 256),
    labelsOf(64, 1),
    labelsOf(63, 256 - 2),
    ...Array.from({ length: 21 }, () => labelsOf(3_000, 256)),
  ];
  const answers = await Promise.all(
    fat.map((labels) =>
      rawUnit(server, "node", { labels })
        .then(() => "admitted")
        .catch(String),
    ),
  );
  expect(answers[2]).toContain("FORBIDDEN: labels and tags must be at most 64");
  expect(new Set(answers)).toEqual(new Set([answers[2]]));

  // As large as they may be, and still short.
  const large = await rawUnit(server, "node", { labels: labelsOf(63, 240) });
  const good = await rawUnit(server, "node");
  const { members } = await good.call("member.list", {});
  expect(JSON.stringify(members).length).toBeLessThan(64 * 1_024);
  await Promise.all([large, good].map(({ raw }) => raw.close()));

  // The labels of its token count as well.
  const labelled = rawUnit(server, "labelled", { labels: labelsOf(63, 240), token_labels: true });
  await expect(labelled).rejects.toThrow("FORBIDDEN: labels and tags must be at most 64");
});

test("many node-units as large as they may be do not make a frame too long for the others", async () => {
  const fat: RawNode[] = [];
  for (let n = 0; n < FAT_UNITS; n++)
    fat.push(
      await joinNode(server, "node", {
        ...{ name: `fat-${n}`, labels: labelsOf(60, 250), member_pages: true },
      }),
    );
  const key = createTestNodeKey();
  const downs: string[] = [];
  const reader = createNodeConnection({
    urls: [server.url],
    key: { address: key.address, sign: async (bytes) => key.signBytes(bytes) },
    bootId: randomUUID(),
    token: server.secretOf("node"),
    describe: () => ({ name: "reader", version: "0.0.0", tags: { node_unit: true } }),
    limits: { frameBytesMax: FRAME_BYTES_MAX },
    on: { down: ({ reason }) => downs.push(reason) },
  });
  reader.start();
  let agent: RunningUnit | undefined;
  try {
    const complete = () => (reader.members?.members.size ?? 0) > FAT_UNITS;
    await until(() => complete() || downs.length > 0, { what: "the members" });
    expect(downs).toEqual([]);
    const names = new Set([...reader.members!.members.values()].map(({ name }) => name));
    expect(fat.filter((_, n) => !names.has(`fat-${n}`))).toEqual([]);
    const list = await listMembers(reader.call);
    console.log(`${list.members.length} members of ${JSON.stringify(list.members).length} bytes`);
    expect(JSON.stringify(list.members).length).toBeGreaterThan(FRAME_BYTES_MAX);
    expect(new Set(list.members.map(({ name }) => name))).toEqual(names);
    expect(downs).toEqual([]);

    const admin = deploymentsOf(server.url, server.secretOf("admin"));
    agent = await startUnit({
      ...{ name: "agent", urls: [server.url] },
      env: { HOST_TOKEN: server.secretOf("node") },
    });
    const pin = agent.address;
    const { id } = await admin.create({ name: "work", command: "sleep 1000", pin });
    const runs = async () => (await admin.read(id)).status.some(({ state }) => state === "running");
    await until(runs, { what: "the agent runs its deployment" });
  } finally {
    await agent?.stop();
    await reader.close();
    for (const { socket } of fat) socket.terminate();
  }
});

test("a token connects no more nodes than its nodes_max", async () => {
  const two: RawUnit[] = [await rawUnit(server, "few"), await rawUnit(server, "few", { tags: {} })];
  await expect(rawUnit(server, "few")).rejects.toThrow("FORBIDDEN: this token does not allow more");
  await two[0]!.raw.close();
  const next = () => rawUnit(server, "few").catch(() => undefined);
  two.push(await until(next, { what: "the place of the node that left" }));
  await Promise.all(two.slice(1).map(({ raw }) => raw.close()));
});
