import type { List } from "@tenure/protocol";

/** The most that a server gives at once. */
const LIMIT = 500;

/** Every item of a list, page by page. */
export async function allPages<Item>(
  read: (page: { limit: number; cursor: string | undefined }) => Promise<List<Item>>,
): Promise<Item[]> {
  const all: Item[] = [];
  let cursor: string | undefined;
  do {
    const { items, next_cursor } = await read({ limit: LIMIT, cursor });
    all.push(...items);
    cursor = next_cursor ?? undefined;
  } while (cursor !== undefined);
  return all;
}
