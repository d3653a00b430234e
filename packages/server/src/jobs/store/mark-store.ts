import * as z from "zod";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { jobKeys } from "./keys.ts";

/** On a Cluster they are on several servers, so that the loss of one of them is noticed. */
const MARKS = 16;

const countScript = defineScript({
  file: new URL("./lua/count-mark.lua", import.meta.url),
  keys: ["mark"],
  args: z.object({ id: z.string() }),
  reply: z.tuple([z.string(), z.int()]),
}).inMemory((space, { mark }, { id }) => {
  const fields = space.hash(mark);
  if (!fields.has("id")) fields.set("id", id);
  const count = Number(fields.get("count") ?? 0) + 1;
  fields.set("count", String(count));
  return [fields.get("id")!, count];
});

export interface Mark {
  id: string;
  count: number;
}

/** Counts all marks up. `id`: of a mark that is made by this call. */
export const countMarks = (hot: HotStore, id: string): Promise<Mark[]> =>
  Promise.all(
    Array.from({ length: MARKS }, async (_, mark) => {
      const key = jobKeys.mark(hot.prefix, mark);
      const [heldId, count] = await hot.run(countScript, { mark: key }, { id });
      return { id: heldId, count };
    }),
  );

/** Whether the store was emptied, or brought back an earlier state, between two calls. */
export const isBehind = (before: readonly Mark[], now: readonly Mark[]): boolean =>
  before.some(({ id, count }, at) => now[at]?.id !== id || now[at].count <= count);
