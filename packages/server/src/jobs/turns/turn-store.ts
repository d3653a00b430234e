import { FinalizeReason } from "@tenure/protocol";
import * as z from "zod";
import { sessionKey } from "../../membership/store/session-store.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { inBatches } from "../store/batches.ts";

/** The current turn is a field of the session's record, which belongs to membership. */
export const turnKeys = {
  session: sessionKey,
  turn: (prefix: string, turnId: string) => `${prefix}:scheduler:turn:${turnId}`,
  /** Turns that may have a node, so that one whose session is gone is found without a scan. */
  open: (prefix: string) => `${prefix}:v1:turns:open`,
};

/** How long an ended turn refuses placements that are late. No decision depends on it. */
const TOMBSTONE_EXPIRY_MS = 600_000;
/** Eight closing jobs of one session, each with its turn: more than can be in flight when an instance stops. */
const CLOSINGS_LENGTH_MAX = 8 * 74;

const joinScript = defineScript({
  file: new URL("./lua/join-turn.lua", import.meta.url),
  keys: ["session"],
  args: z.object({
    job: z.string(),
    turn: z.string(),
    finalize: z.boolean(),
    closings_max: z.int().positive(),
  }),
  reply: z.union([
    z.tuple([z.literal("joined"), z.string(), z.int()]),
    z.tuple([z.literal("absent")]),
  ]),
}).inMemory((space, { session }, { job, turn, finalize, closings_max }) => {
  if (!space.has(session) || !space.hash(session).has("tenant")) return ["absent"];
  const fields = space.hash(session);
  const current = fields.get("current_turn_id");
  const begun = current ? 0 : 1;
  if (!finalize) {
    fields.set("current_turn_id", current ?? turn);
    return ["joined", current ?? turn, begun];
  }
  const closings = fields.get("closings") ?? "";
  const before = closings.split(" ").find((closing) => closing.startsWith(`${job}=`));
  if (before) return ["joined", before.slice(job.length + 1), 0];
  fields.delete("current_turn_id");
  fields.set("closings", `${job}=${current ?? turn} ${closings}`.slice(0, closings_max));
  return ["joined", current ?? turn, begun];
});

const leaveScript = defineScript({
  file: new URL("./lua/leave-turn.lua", import.meta.url),
  keys: ["session"],
  args: z.object({ turn: z.string() }),
  reply: z.union([z.tuple([z.literal("left"), z.string()]), z.tuple([z.literal("none")])]),
}).inMemory((space, { session }, { turn }) => {
  const current = space.has(session) && space.hash(session).get("current_turn_id");
  if (!current || (turn !== "" && current !== turn)) return ["none"];
  space.hash(session).delete("current_turn_id");
  return ["left", current];
});

const openScript = defineScript({
  file: new URL("./lua/open-turn.lua", import.meta.url),
  keys: ["turn"],
  args: z.object({ session: z.string() }),
  reply: z.tuple([z.enum(["open", "ended"])]),
}).inMemory((space, keys, { session }) => {
  const turn = space.hash(keys.turn);
  if (turn.has("ended")) return ["ended"];
  turn.set("session_id", turn.get("session_id") ?? session);
  return ["open"];
});

const placeScript = defineScript({
  file: new URL("./lua/place-turn.lua", import.meta.url),
  keys: ["turn"],
  args: z.object({ session: z.string(), node: z.string() }),
  reply: z.tuple([z.enum(["placed", "stored"]), z.string()]),
}).inMemory((space, keys, { session, node }) => {
  const turn = space.hash(keys.turn);
  const field = turn.has("ended") ? "last_node_id" : "affinity_node_id";
  const stored = turn.get(field);
  if (stored) return ["stored", stored];
  turn.set("session_id", turn.get("session_id") ?? session).set(field, node);
  return ["placed", node];
});

const endScript = defineScript({
  file: new URL("./lua/end-turn.lua", import.meta.url),
  keys: ["turn"],
  args: z.object({ session: z.string(), reason: FinalizeReason, expiry_ms: z.int().positive() }),
  reply: z.tuple([z.enum(["ended", "already"])]),
}).inMemory((space, keys, { session, reason, expiry_ms }) => {
  const turn = space.hash(keys.turn);
  if (turn.has("ended")) return ["already"];
  const node = turn.get("affinity_node_id");
  turn.delete("affinity_node_id");
  if (node) turn.set("last_node_id", node);
  turn.set("ended", reason).set("session_id", turn.get("session_id") ?? session);
  space.expire(keys.turn, expiry_ms);
  return ["ended"];
});

const readScript = defineScript({
  file: new URL("./lua/read-turn.lua", import.meta.url),
  keys: ["turn"],
  args: z.object({}),
  reply: z.union([
    z.tuple([z.literal("found"), z.string(), z.string(), z.union([FinalizeReason, z.literal("")])]),
    z.tuple([z.literal("absent")]),
  ]),
}).inMemory((space, keys) => {
  const turn = space.has(keys.turn) ? space.hash(keys.turn) : undefined;
  const session = turn?.get("session_id");
  if (!turn || !session) return ["absent"];
  const ended = (turn.get("ended") ?? "") as FinalizeReason | "";
  return ["found", session, turn.get("affinity_node_id") ?? "", ended];
});

const noteScript = defineScript({
  file: new URL("./lua/note-turn.lua", import.meta.url),
  keys: ["open"],
  args: z.object({ turn: z.string(), check_in_ms: z.int().min(0) }),
  reply: z.tuple([z.literal("noted")]),
}).inMemory((space, keys, { turn, check_in_ms }) => {
  const open = space.scores(keys.open);
  if (!open.has(turn)) open.set(turn, space.nowMs() + check_in_ms);
  return ["noted"];
});

const takeScript = defineScript({
  file: new URL("./lua/take-turns.lua", import.meta.url),
  keys: ["open"],
  args: z.object({ count: z.int().positive(), check_in_ms: z.int().min(0) }),
  reply: z.tuple([z.literal("taken")], z.string()),
}).inMemory((space, keys, { count, check_in_ms }) => {
  const open = space.scores(keys.open);
  const now = space.nowMs();
  const due = [...open].filter(([, atMs]) => atMs <= now).sort((a, b) => a[1] - b[1]);
  const taken = due.slice(0, count).map(([turn]) => turn);
  for (const turn of taken) open.set(turn, now + check_in_ms);
  return ["taken", ...taken];
});

const forgetScript = defineScript({
  file: new URL("./lua/forget-turns.lua", import.meta.url),
  keys: ["open"],
  args: z.object({ turns: z.array(z.string()) }),
  reply: z.tuple([z.literal("forgotten"), z.int()]),
}).inMemory((space, keys, { turns }) => {
  const open = space.scores(keys.open);
  for (const turn of turns) open.delete(turn);
  return ["forgotten", open.size];
});

/** A job that joins the current turn of its session. */
export interface Joining {
  sessionId: string;
  jobId: string;
  /** The id of the turn if this job begins one. */
  turnId: string;
  /** This job is the turn's last. */
  finalize: boolean;
}

/** `begun`: by this job. `absent`: the session does not exist any more. */
export type Joined = { outcome: "joined"; turnId: string; begun: boolean } | { outcome: "absent" };

/**
 * Decides which turn a job belongs to. Only for a job that has won its request: a repeated request must not join the current
 * turn. A closing job that joins again gets the turn it closed.
 */
export async function joinTurn(hot: HotStore, joining: Joining): Promise<Joined> {
  const { sessionId, jobId, turnId, finalize } = joining;
  const session = turnKeys.session(hot.prefix, sessionId);
  const args = { job: jobId, turn: turnId, finalize, closings_max: CLOSINGS_LENGTH_MAX };
  const reply = await hot.run(joinScript, { session }, args);
  if (reply[0] === "absent") return { outcome: "absent" };
  return { outcome: "joined", turnId: reply[1], begun: reply[2] === 1 };
}

/**
 * Leaves the session's current turn: the next job begins another. Returns its id; `undefined` if there is none, or another
 * than `turnId`. `endTurn` ends the turn itself.
 */
export async function leaveTurn(
  hot: HotStore,
  { sessionId, turnId }: { sessionId: string; turnId?: string | undefined },
): Promise<string | undefined> {
  const session = turnKeys.session(hot.prefix, sessionId);
  const reply = await hot.run(leaveScript, { session }, { turn: turnId ?? "" });
  return reply[0] === "left" ? reply[1] : undefined;
}

/** Opens a turn that has begun, so that it can be read before it has a node. Call `noteTurn` before it. */
export async function openTurn(
  hot: HotStore,
  { turnId, sessionId }: { turnId: string; sessionId: string },
): Promise<"open" | "ended"> {
  const turn = turnKeys.turn(hot.prefix, turnId);
  return (await hot.run(openScript, { turn }, { session: sessionId }))[0];
}

/** `placed`: this placement decided. `stored`: an earlier one did, and `nodeId` is its node. */
export interface Placed {
  outcome: "placed" | "stored";
  nodeId: string;
}

/**
 * Decides the turn's node. Call `noteTurn` before the first placement of a turn on this instance. A turn that has ended stays
 * ended; its late jobs get the node of the others.
 */
export async function placeTurn(
  hot: HotStore,
  { turnId, sessionId, nodeId }: { turnId: string; sessionId: string; nodeId: string },
): Promise<Placed> {
  const turn = turnKeys.turn(hot.prefix, turnId);
  const reply = await hot.run(placeScript, { turn }, { session: sessionId, node: nodeId });
  return { outcome: reply[0], nodeId: reply[1] };
}

/** Ends a turn after its last job is placed or has ended, or after `leaveTurn`. `false`: it had ended before. */
export async function endTurn(
  hot: HotStore,
  { turnId, sessionId, reason }: { turnId: string; sessionId: string; reason: FinalizeReason },
): Promise<boolean> {
  const turn = turnKeys.turn(hot.prefix, turnId);
  const args = { session: sessionId, reason, expiry_ms: TOMBSTONE_EXPIRY_MS };
  return (await hot.run(endScript, { turn }, args))[0] === "ended";
}

export interface TurnRecord {
  turnId: string;
  sessionId: string;
  nodeId: string | undefined;
  ended: FinalizeReason | undefined;
}

/** `undefined` also for a turn that is not opened yet: until then it is a field of its session. */
export async function readTurn(hot: HotStore, turnId: string): Promise<TurnRecord | undefined> {
  const reply = await hot.run(readScript, { turn: turnKeys.turn(hot.prefix, turnId) }, {});
  if (reply[0] === "absent") return undefined;
  const [, sessionId, nodeId, ended] = reply;
  return { turnId, sessionId, nodeId: nodeId || undefined, ended: ended || undefined };
}

/** Lists a turn for the sweep, which checks it from `checkInMs` on. Called before the turn gets its node. */
export async function noteTurn(hot: HotStore, turnId: string, checkInMs: number): Promise<void> {
  const open = turnKeys.open(hot.prefix);
  await hot.run(noteScript, { open }, { turn: turnId, check_in_ms: checkInMs });
}

/** Takes the turns to check now. Each comes again in `checkInMs` unless it is forgotten. */
export async function takeTurns(
  hot: HotStore,
  { countMax, checkInMs }: { countMax: number; checkInMs: number },
): Promise<string[]> {
  const args = { count: countMax, check_in_ms: checkInMs };
  const [, ...turns] = await hot.run(takeScript, { open: turnKeys.open(hot.prefix) }, args);
  return turns;
}

/** Removes ended turns from the list. Returns how many are still listed. */
export async function forgetTurns(hot: HotStore, turnIds: readonly string[]): Promise<number> {
  const open = turnKeys.open(hot.prefix);
  let noted = 0;
  for (const turns of turnIds.length === 0 ? [[]] : inBatches(turnIds))
    noted = (await hot.run(forgetScript, { open }, { turns }))[1];
  return noted;
}
