import { expect, test } from "vitest";
import { systemClock } from "./clock.ts";

test("a delay longer than a timer can count does not fire at once", async () => {
  let fired = false;
  const cancel = systemClock.after(2 ** 31, () => {
    fired = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(fired).toBe(false);
  cancel();
});
