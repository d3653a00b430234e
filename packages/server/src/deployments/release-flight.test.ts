import { expect, test } from "vitest";
import { createReleaseFlight, type Freed } from "./release-flight.ts";

// Who asks for what, with statements that end when the test says so.

function stage(owners: string[]) {
  const owned = new Set(owners);
  const runs: { addresses: string[]; end: (outcome: Freed["outcome"] | Error) => void }[] = [];
  const release = createReleaseFlight({
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

test("1,000 callers that release the same nodes cause one statement", async () => {
  const { release, runs } = stage(["a", "b"]);
  const asked = Array.from({ length: 1_000 }, (_, nth) => release(`n${nth}`, ["a", "b"]));
  runs[0]!.end("released");
  const answers = await Promise.all(asked);
  expect(runs.map(({ addresses }) => addresses)).toEqual([["a", "b"]]);
  expect(answers.filter((answer) => answer?.outcome === "released")).toHaveLength(1);
});

test("a caller that knows of another loss releases it when the first release has ended", async () => {
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

test("nodes that own nothing need no statement", async () => {
  const { release, runs } = stage([]);
  expect(await release("n1", ["a"])).toBeUndefined();
  expect(runs).toEqual([]);
});

test("callers that waited for a release that freed nothing yet do not repeat it", async () => {
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

test("a refused caller does not stop the next one; a failed release fails all waiting callers", async () => {
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
