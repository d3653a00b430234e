import { afterAll, beforeAll, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { type RawUnit, rawUnit } from "./raw-unit.ts";
import { type AttackedServer, attackServer } from "./scene.ts";

let server: AttackedServer;
beforeAll(async () => {
  server = await attackServer([
    { name: "admin", role: "admin" },
    { name: "node", role: "node" },
    { name: "few", role: "node", scope: { nodes_max: 2 } },
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
});

test("a token connects no more nodes than its nodes_max", async () => {
  const two: RawUnit[] = [await rawUnit(server, "few"), await rawUnit(server, "few", { tags: {} })];
  await expect(rawUnit(server, "few")).rejects.toThrow("FORBIDDEN: this token does not allow more");
  await two[0]!.raw.close();
  const next = () => rawUnit(server, "few").catch(() => undefined);
  two.push(await until(next, { what: "the place of the node that left" }));
  await Promise.all(two.slice(1).map(({ raw }) => raw.close()));
});
