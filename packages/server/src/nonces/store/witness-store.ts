import * as z from "zod";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { Position, walBytes } from "../witness.ts";

const noteScript = defineScript({
  file: new URL("./lua/note-witness.lua", import.meta.url),
  keys: ["witness"],
  args: z.object({ rank: z.string(), position: z.string() }),
  reply: z.union([z.tuple([z.literal("position"), z.string()]), z.tuple([z.literal("absent")])]),
}).inMemory((space, { witness }, { rank, position }) => {
  const kept = space.hash(witness);
  const rankKept = kept.get("rank");
  if (rank !== "" && (rankKept === undefined || rank > rankKept)) {
    kept.set("rank", rank);
    kept.set("position", position);
    return ["position", position];
  }
  return rankKept === undefined ? ["absent"] : ["position", kept.get("position")!];
});

/** The newest position any instance noted, after noting this one. Without one it only reads. */
export async function noteWitness(hot: HotStore, noted?: Position): Promise<Position | undefined> {
  const keys = { witness: `${hot.prefix}:v1:nonces:witness` };
  const args = { rank: noted ? rankOf(noted) : "", position: noted ? JSON.stringify(noted) : "" };
  const [outcome, position] = await hot.run(noteScript, keys, args);
  return outcome === "position" ? Position.parse(JSON.parse(position)) : undefined;
}

/** The order of `isNewer` as text: fixed widths, so that Redis can compare it. */
function rankOf({ confirmed_at, wal }: Position): string {
  return `${String(confirmed_at).padStart(16, "0")}:${walBytes(wal).toString(16).padStart(16, "0")}`;
}
