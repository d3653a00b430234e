import { expect, test } from "vitest";
import { allPages } from "./pages.ts";

test("every page is asked for by the cursor of the one before it, until there is none", async () => {
  const asked: (string | undefined)[] = [];
  const all = await allPages(async ({ cursor }) => {
    asked.push(cursor);
    const at = Number(cursor ?? 0);
    return { items: [at, at + 1], next_cursor: at < 4 ? String(at + 2) : null };
  });
  expect(all).toEqual([0, 1, 2, 3, 4, 5]);
  expect(asked).toEqual([undefined, "2", "4"]);
});
