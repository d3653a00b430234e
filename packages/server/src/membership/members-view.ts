import type { Member, ViewState } from "@tenure/protocol";
import type { NodeUnitRow } from "./store/node-unit-store.ts";

export type Members = ReadonlyMap<string, Member>;

/** A JOIN has only `new`, a LEAVE only `old`, an UPDATE both. */
export interface MemberChange {
  new?: Member;
  old?: Member;
}

/** The present node-units, by address. */
export function membersOf(rows: readonly NodeUnitRow[]): Members {
  return new Map(rows.filter((row) => row.present).map((row) => [row.address, memberOf(row)]));
}

/** The changes between two reads. A reconnect changes instance and epoch: it is an UPDATE, not a LEAVE. */
export function changesBetween(before: Members, after: Members): MemberChange[] {
  const left = [...before.values()]
    .filter(({ address }) => !after.has(address))
    .map((old) => ({ old }));
  const others = [...after.values()].flatMap((now): MemberChange[] => {
    const old = before.get(now.address);
    if (!old) return [{ new: now }];
    if (old === now) return [];
    return JSON.stringify(old) === JSON.stringify(now) ? [] : [{ new: now, old }];
  });
  return [...left, ...others];
}

/** The node-units that are expected, and until when: before that, absence is no loss. */
export interface Settling {
  expected: ReadonlySet<string>;
  untilMs: number;
}

/** The view is `ready` when all expected node-units are present, or when they had one TTL to join. */
export function viewState(
  settling: Settling | undefined,
  members: Members,
  nowMs: number,
): ViewState {
  if (!settling || nowMs >= settling.untilMs) return "ready";
  return [...settling.expected].every((address) => members.has(address)) ? "ready" : "settling";
}

/** Members of rows, while the rows are kept: of thousands of rows few change between two looks. */
const known = new WeakMap<NodeUnitRow, Member>();

function memberOf(row: NodeUnitRow): Member {
  const member = known.get(row) ?? newMember(row);
  known.set(row, member);
  return member;
}

function newMember(row: NodeUnitRow): Member {
  return {
    address: row.address,
    name: row.name,
    instance_id: row.instance_id,
    epoch: row.epoch,
    claim_policy: row.claim_policy,
    labels: row.labels,
    trusted_package_regexp: row.trusted_package_regexp,
    custom_command: row.custom_command,
    draining: row.draining,
    tags: row.tags,
    ...(row.tenants && { tenants: row.tenants }),
    joined_at: row.joined_at.toISOString(),
  };
}
