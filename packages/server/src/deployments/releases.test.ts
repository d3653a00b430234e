import { expect, test } from "vitest";
import { createReleases, type Freed } from "./releases.ts";

// Who asks for what, with statements that end when the test says so.

function stage(owners: string[]) {
  const owned = new Set(owners);
  const runs: { addresses: string[]; end: (outcome: Freed["outcome"] | Error) => void }[] = [];
  const release = createReleases({
    owns: (address) => owned.has(address),
    run: (_: string, addresses) =>
      new Promise<Freed>((resolve, reject) => {
        runs.push({
          addresses,
          end(outcome) {
            if (outcome instanceof Error) return reject(outcome);
            if (outcome === "released") for (const address of addresses) owned.delete(address);
            resolve({ outcome });
          },
        });
      }),
  });
  return { release, runs, owned };
}

const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

test("a thousand who ask for the same are one statement", async () => {
  const { release, runs } = stage(["a", "b"]);
  const asked = Array.from({ length: 1_000 }, (_, nth) => release(`n${nth}`, ["a", "b"]));
  runs[0]!.end("released");
  const answers = await Promise.all(asked);
  expect(runs.map(({ addresses }) => addresses)).toEqual([["a", "b"]]);
  expect(answers.filter((answer) => answer?.outcome === "released")).toHaveLength(1);
});

test("whoever knows of another loss asks for that when the first has ended", async () => {
  const { release, runs } = stage(["a", "b"]);
  const first = release("n1", ["a"]);
  const second = release("n2", ["a", "b"]);
  runs[0]!.end("released");
  await first;
  await settled();
  expect(runs.map(({ addresses }) => addresses)).toEqual([["a"], ["b"]]);
  runs[1]!.end("released");
  expect(await second).toEqual({ outcome: "released" });
});

test("what nobody owns needs no statement", async () => {
  const { release, runs } = stage([]);
  expect(await release("n1", ["a"])).toBeUndefined();
  expect(runs).toEqual([]);
});

test("a statement that may not free them yet is not repeated by those who waited for it", async () => {
  const { release, runs, owned } = stage(["a"]);
  const asked = [release("n1", ["a"]), release("n2", ["a"])];
  runs[0]!.end("released");
  owned.add("a"); // its time is not up
  await Promise.all(asked);
  expect(runs).toHaveLength(1);
  const later = release("n2", ["a"]);
  expect(runs).toHaveLength(2);
  runs[1]!.end("released");
  await later;
});

test("a caller who may not ask keeps nobody from asking; a store that is away fails all who wait", async () => {
  const { release, runs } = stage(["a"]);
  const refused = release("replaced", ["a"]);
  const next = release("n1", ["a"]);
  runs[0]!.end("refused");
  expect(await refused).toEqual({ outcome: "refused" });
  await settled();
  const waiting = release("n2", ["a"]);
  runs[1]!.end(new Error("away"));
  await expect(next).rejects.toThrow("away");
  await expect(waiting).rejects.toThrow("away");
  expect(runs).toHaveLength(2);
});
