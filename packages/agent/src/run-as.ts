import { readFileSync } from "node:fs";

/** The user and group of a process. */
export interface Owner {
  uid: number;
  gid: number;
}

/** The users of the children: one for all, or one per deployment from a range; one group for all. */
export type RunAs =
  | (Owner & { kind: "one" })
  | { kind: "each"; firstUid: number; lastUid: number; gid: number };

export const isRunAsUid = (runAs: RunAs, uid: number): boolean =>
  runAs.kind === "one" ? uid === runAs.uid : uid >= runAs.firstUid && uid <= runAs.lastUid;

/** 2^32 - 1 means "unchanged" to the kernel. */
const ID_MAX = 4_294_967_294;
const PER_DEPLOYMENT = /^per-deployment:(\d{1,10})-(\d{1,10})(?::([^:]+))?$/;

/** Parses `user`, `user:group` or `per-deployment:FIRST-LAST[:group]`, with names of /etc/passwd and /etc/group. */
export function parseRunAs(
  text: string,
  { users, groups } = { users: readTable("/etc/passwd"), groups: readTable("/etc/group") },
): RunAs | { problem: string } {
  const each = PER_DEPLOYMENT.exec(text);
  if (each) {
    const [, first = "", last = "", group] = each;
    const gid = group === undefined ? Number(first) : idOf(group, groups);
    return checked({ kind: "each", firstUid: Number(first), lastUid: Number(last), gid: gid ?? 0 });
  }
  const [, user, group] = /^([^:]+)(?::([^:]+))?$/.exec(text) ?? [];
  const uid = user === undefined ? undefined : idOf(user, users);
  if (user === undefined || uid === undefined)
    return {
      problem:
        "must be user, user:group or per-deployment:FIRST-LAST; a name must be in /etc/passwd",
    };
  const primary = users.find(([, , id]) => id === String(uid))?.[3];
  const gid = group === undefined ? Number(primary ?? uid) : idOf(group, groups);
  return checked({ kind: "one", uid, gid: gid ?? 0 });
}

function checked(runAs: RunAs): RunAs | { problem: string } {
  if (runAs.gid === 0)
    return { problem: "must have a group of /etc/group, or a number, other than root's" };
  const [first, last] =
    runAs.kind === "one" ? [runAs.uid, runAs.uid] : [runAs.firstUid, runAs.lastUid];
  if (first === 0) return { problem: "must not name root" };
  if (first > last || last > ID_MAX || runAs.gid > ID_MAX)
    return { problem: `must be numbers up to ${ID_MAX}, the first before the last` };
  return runAs;
}

type Table = readonly (readonly string[])[];

function idOf(nameOrNumber: string, table: Table): number | undefined {
  if (/^\d{1,10}$/.test(nameOrNumber)) return Number(nameOrNumber);
  const id = table.find(([name]) => name === nameOrNumber)?.[2];
  return id === undefined ? undefined : Number(id);
}

function readTable(path: string): Table {
  try {
    const lines = readFileSync(path, "utf8").split("\n");
    return lines.map((line) => line.split(":"));
  } catch {
    return []; // Without the table only numbers work.
  }
}
