import type { Member, ViewState } from "@tenure/protocol";
import type { MembersService } from "./members.ts";
import { memberJson } from "./sending/member-json.ts";
import { membersFor } from "./visible-members.ts";

/** Of one frame to a node-unit. It reads 16 MiB, and the server buffers 8 MiB for it. */
export const PAGE_BYTES_MAX = 512 * 1_024;
/** Of the whole list in one frame, for node-units of 0.1, which know no pages. */
export const WHOLE_BYTES_MAX = 6 * 1_024 * 1_024;

export interface MembersReader {
  readonly tenants: readonly string[];
  /** Whether the node-unit reads the list in pages. */
  readonly readsPages: boolean;
}

interface PageLink {
  sendText(message: Buffer): void;
  whenDrained(callback: () => void): void;
}

export interface MemberPages {
  /**
   * Sends the members as INIT events, each when the one before has left the process. Returns what the first has, and how
   * to stop: the changes after that `seq` complete the list.
   */
  send(link: PageLink, reader: MembersReader): Stamp & { stop: () => void };
  /** The answer to `member.list`: the first page with members after that address. */
  list(reader: MembersReader, after?: string): Buffer;
}

/** Members in the order of their addresses. */
interface Page {
  /** Where it begins: the last address of the page before. */
  after: string;
  /** Its last address, when there are members behind it. */
  next: string | undefined;
  /** The INIT event. */
  frame: Buffer;
  /** Its members, a JSON array: a part of `frame`. */
  members: Buffer;
}

interface Written {
  sorted: readonly Member[];
  pages: readonly Page[];
}

interface Stamp {
  seq: number;
  view: ViewState;
}

/**
 * The members as JSON in pages, written once per change for all node-units that serve the same tenants. A reader goes on
 * by the last address it has, in the pages of that moment: no list is kept for a slow one. Its pages may be of different
 * states; the changes after the `seq` of its first page, applied in order, make them one.
 */
export function createMemberPages(
  current: MembersService["current"],
  { pageBytesMax = PAGE_BYTES_MAX, wholeBytesMax = WHOLE_BYTES_MAX } = {},
): MemberPages {
  let stamp: Stamp | undefined;
  let written = new Map<string, Written>();

  function pageAfter({ tenants, readsPages }: MembersReader, after = ""): Page & Stamp {
    const { seq, view, members } = current();
    if (seq !== stamp?.seq || view !== stamp.view) written = new Map();
    stamp = { seq, view };
    const bytesMax = readsPages ? pageBytesMax : Number.POSITIVE_INFINITY;
    const key = `${readsPages} ${tenants.join(" ")}`;
    const known = written.get(key) ?? write(stamp);
    written.set(key, known);
    const page = known.pages.find((one) => one.after === after) ?? writeFrom(after, stamp);
    return { ...page, seq, view };

    function write(at: Stamp): Written {
      const visible = membersFor(members, tenants);
      const shown = readsPages ? visible : shortened(visible, wholeBytesMax);
      const sorted = shown.sort((a, b) => (a.address < b.address ? -1 : 1));
      return { sorted, pages: writePages(sorted, bytesMax, at) };
    }

    /** For a reader that began with the pages of an earlier state, which ended elsewhere. */
    function writeFrom(address: string, at: Stamp): Page {
      const index = known.sorted.findIndex((member) => member.address > address);
      const rest = index < 0 ? known.sorted.length : index;
      return writePage(known.sorted, { from: rest, after: address, bytesMax }, at);
    }
  }

  return {
    send({ sendText, whenDrained }, reader) {
      let stopped = false;
      const { seq, view } = sendAfter(undefined);
      const stop = () => {
        stopped = true;
      };
      return { seq, view, stop };

      function sendAfter(after: string | undefined): Stamp {
        const { frame, next, ...stamp } = pageAfter(reader, after);
        sendText(frame);
        if (next !== undefined) whenDrained(() => !stopped && sendAfter(next));
        return stamp;
      }
    },
    list(reader, after) {
      const { seq, view, next, members } = pageAfter(reader, after);
      return withMembers({ seq, view, ...(next !== undefined && { next }) }, members);
    },
  };
}

function writePages(sorted: readonly Member[], bytesMax: number, at: Stamp): Page[] {
  const pages = [writePage(sorted, { from: 0, after: "", bytesMax }, at)];
  for (let page = pages[0]; page?.next !== undefined; page = pages.at(-1)) {
    const after = page.next;
    const from = sorted.findIndex(({ address }) => address > after);
    pages.push(writePage(sorted, { from, after, bytesMax }, at));
  }
  return pages;
}

/** As many members as fit, and at least one while there are any. */
function writePage(
  sorted: readonly Member[],
  { from, after, bytesMax }: { from: number; after: string; bytesMax: number },
  { seq, view }: Stamp,
): Page {
  const texts: string[] = [];
  let bytes = HEAD_BYTES_MAX;
  for (const member of sorted.slice(from)) {
    const text = memberJson(member);
    bytes += Buffer.byteLength(text) + 1;
    if (texts.length > 0 && bytes > bytesMax) break;
    texts.push(text);
  }
  const end = from + texts.length;
  const next = end < sorted.length ? sorted[end - 1]?.address : undefined;
  const fields = {
    ...{ type: "host_event", seq, event: "INIT", view },
    ...(after !== "" && { after }),
    ...(next !== undefined && { next }),
  };
  const members = Buffer.from(`[${texts.join(",")}]`);
  const frame = withMembers(fields, members);
  return { after, next, frame, members: frame.subarray(-members.length - 1, -1) };
}

/** What a frame has besides its members: two addresses, and less than a hundred other characters. */
const HEAD_BYTES_MAX = 512;

const withMembers = (fields: object, members: Buffer): Buffer =>
  Buffer.concat([
    Buffer.from(`${JSON.stringify(fields).slice(0, -1)},"members":`),
    members,
    Buffer.from("}"),
  ]);

/**
 * The members without the labels and texts in tags of the largest ones, as many as it takes to make them fit. A node-unit
 * of 0.1 then does not wait for those to claim what their labels select; the server still decides each claim.
 */
function shortened(members: readonly Member[], bytesMax: number): Member[] {
  const sized = members.map((member) => ({ member, bytes: bytesOf(member) }));
  let bytes = HEAD_BYTES_MAX + sized.reduce((sum, one) => sum + one.bytes + 1, 0);
  if (bytes <= bytesMax) return [...members];
  sized.sort((a, b) => b.bytes - a.bytes);
  return sized.map(({ member, bytes: before }) => {
    if (bytes <= bytesMax) return member;
    const short = { ...member, labels: {}, tags: flagsOf(member) };
    bytes -= before - bytesOf(short);
    return short;
  });
}

const flagsOf = ({ tags }: Member): Member["tags"] =>
  Object.fromEntries(Object.entries(tags).filter(([, value]) => typeof value === "boolean"));

const bytesOf = (member: Member): number => Buffer.byteLength(memberJson(member));
