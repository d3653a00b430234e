import { expect, test } from "vitest";

test("goes on until somebody ends the run", async () => {
  console.log("lingering");
  await new Promise((resolve) => setTimeout(resolve, 600_000));
  expect.unreachable();
}, 600_000);
