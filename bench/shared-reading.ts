import type { HostEvent, Member } from "@tenure/protocol";
import { type Frame, type MemberMap, readFrame } from "@tenure/sdk";
import type * as z from "zod";

// On a machine of its own each node-unit parses its frames and keeps the members. Thousands of node-units in one process of
// a benchmark would charge that to the cores of the server, thousands of times for the same bytes. They share it: a frame
// with the same text is parsed once, and the members at the same change of the same server are one map.

/** A frame with less is parsed by each. */
const SHARED_LENGTH_MIN = 200;
/** Node-units receive the same frame within a few looks of the server. */
const FRAMES_MAX = 256;
const STATES_MAX = 256;

export const sharingCounts = { reused: 0 };

const frames = new Map<string, Frame<unknown>>();

export function readSharedFrame<In>(schema: z.ZodType<In>, text: string): Frame<In> {
  if (text.length < SHARED_LENGTH_MIN || !text.startsWith('{"type":"host_event"'))
    return readFrame(schema, text);
  const known = frames.get(text) as Frame<In> | undefined;
  if (known) {
    sharingCounts.reused += 1;
    return known;
  }
  const frame = readFrame(schema, text);
  keep(frames, text, frame, FRAMES_MAX);
  return frame;
}

type State = ReadonlyMap<string, Member>;

/** By the number of their last change: all are connected to one server, and serve the same tenants. */
const states = new Map<number, State>();

function stateAt(seq: number, make: () => State): State {
  const state = states.get(seq) ?? make();
  keep(states, seq, state, STATES_MAX);
  return state;
}

export class SharedMemberMap implements MemberMap {
  #members: State = new Map();

  read(): State {
    return this.#members;
  }

  replace(members: readonly Member[], seq: number): void {
    this.#members = stateAt(seq, () => new Map(members.map((member) => [member.address, member])));
  }

  apply(event: HostEvent): void {
    const { changed = [], left = [], new: joined, old } = event;
    if (changed.length + left.length === 0 && !joined && !old) return;
    this.#members = stateAt(event.seq, () => after(this.#members, event));
  }
}

function after(members: State, { changed = [], left = [], new: joined, old }: HostEvent): State {
  const next = new Map(members);
  for (const member of joined ? [...changed, joined] : changed) next.set(member.address, member);
  for (const { address, epoch } of old && !joined ? [...left, old] : left)
    if ((next.get(address)?.epoch ?? 0) <= epoch) next.delete(address);
  return next;
}

function keep<K, V>(map: Map<K, V>, key: K, value: V, max: number): void {
  map.delete(key);
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > max) map.delete(oldest!);
}
