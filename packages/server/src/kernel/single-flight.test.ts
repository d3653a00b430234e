import { expect, test } from "vitest";
import { createSingleFlight } from "./single-flight.ts";

test("callers of one key share a running call, and the next call runs again", async () => {
  const share = createSingleFlight<number>();
  let runs = 0;
  const work = async () => ++runs;
  expect(await Promise.all([share("a", work), share("a", work), share("b", work)])).toEqual([
    1, 1, 2,
  ]);
  expect(await share("a", work)).toBe(3);
});

test("a failed call rejects its callers and is not kept", async () => {
  const share = createSingleFlight<number>();
  const fail = () => Promise.reject(new Error("no"));
  const outcomes = await Promise.allSettled([share("a", fail), share("a", fail)]);
  expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect(await share("a", async () => 1)).toBe(1);
});
