import type { Member, ViewState } from "@tenure/protocol";
import { changeFor } from "../visible-members.ts";
import type { NumberedChange } from "./change-log.ts";
import { memberJson } from "./member-json.ts";

export interface ChangeFrame {
  frame: Buffer;
  /** The number of the last change in it. */
  seq: number;
}

/** One TERMINAL_CHANGE per change, for node-units that read no batches: as many as fit, and at least one. */
export function singleFrames(
  changes: readonly NumberedChange[],
  { view, tenants }: { view: ViewState; tenants: readonly string[] },
  bytesMax: number,
): ChangeFrame[] {
  const frames: ChangeFrame[] = [];
  let bytes = 0;
  for (const { seq, ...change } of changes) {
    const event = { type: "host_event", event: "TERMINAL_CHANGE", view, seq };
    const frame = Buffer.from(JSON.stringify({ ...event, ...changeFor(change, tenants) }));
    bytes += frame.length;
    if (frames.length > 0 && bytes > bytesMax) break;
    frames.push({ seq, frame });
  }
  return frames;
}

/**
 * The changes as one TERMINAL_CHANGE with the last state of each member: as many changes as fit, and at least one while
 * there are any. Without changes it has only the view.
 */
export function batchFrame(
  changes: readonly NumberedChange[],
  { after, view, tenants }: { after: number; view: ViewState; tenants: readonly string[] },
  bytesMax: number,
): ChangeFrame {
  const last = new Map<string, { now: Member | undefined; epoch: number }>();
  let bytes = 0;
  let seq = after;
  for (const change of changes) {
    const { new: now, old } = changeFor(change, tenants);
    bytes += now ? Buffer.byteLength(memberJson(now)) + 1 : LEFT_BYTES_MAX;
    if (seq > after && bytes > bytesMax) break;
    seq = change.seq;
    const member = now ?? old;
    if (member) last.set(member.address, { now, epoch: member.epoch });
  }
  const states = [...last];
  const changed = states.flatMap(([, { now }]) => (now ? memberJson(now) : []));
  const left = states.flatMap(([address, { now, epoch }]) => (now ? [] : { address, epoch }));
  const head = { type: "host_event", event: "TERMINAL_CHANGE", view, seq, after_seq: after, left };
  return {
    seq,
    frame: Buffer.from(`${JSON.stringify(head).slice(0, -1)},"changed":[${changed.join(",")}]}`),
  };
}

const LEFT_BYTES_MAX = 100;
