import { expect, test } from "vitest";
import { createLimit } from "./limit.ts";

test("no more work runs at once than the limit; the rest follows in its order, also after a failure", async () => {
  const limit = createLimit(2);
  const begun: number[] = [];
  const ends: End[] = [];
  const work = (n: number) => () => {
    begun.push(n);
    ends[n] = withResolvers();
    return ends[n].promise;
  };
  const answers = [0, 1, 2, 3].map((n) => limit(work(n)));
  expect(begun).toEqual([0, 1]);
  ends[1]!.reject(new Error("planted"));
  await expect(answers[1]).rejects.toThrow("planted");
  expect(begun).toEqual([0, 1, 2]);
  ends[0]!.resolve(10);
  expect(await answers[0]).toBe(10);
  expect(begun).toEqual([0, 1, 2, 3]);
  ends[2]!.resolve(12);
  ends[3]!.resolve(13);
  expect(await Promise.all(answers.slice(2))).toEqual([12, 13]);
});

interface End {
  promise: Promise<number>;
  resolve: (value: number) => void;
  reject: (error: unknown) => void;
}

function withResolvers(): End {
  let [resolve, reject]: [End["resolve"], End["reject"]] = [() => {}, () => {}];
  const promise = new Promise<number>((...both) => {
    [resolve, reject] = both;
  });
  return { promise, resolve, reject };
}
