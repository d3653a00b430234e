import { listMembers, type NodeConnection } from "@tenure/sdk";
import type { LoopPorts, MembersSnapshot } from "./loop/loop-ports.ts";

type ReadMembers = LoopPorts["members"];

/** Makes the loop's calls over a connection, whose timeout is shorter than the interval. */
export function serverPorts({
  connection,
  members,
  readsSubset,
  ...rest
}: {
  connection: Pick<NodeConnection, "call">;
  members: ReadMembers;
  /** Whether this node can decide by a part of the list, and the server of this connection sends one. */
  readsSubset: () => boolean;
} & Omit<LoopPorts, "members" | "list" | "release" | "claim" | "reserve">): LoopPorts {
  return {
    ...rest,
    members,
    list: (revision, owners) =>
      connection.call("deployment.list", {
        ...(revision !== undefined && { revision }),
        ...(readsSubset() && { subset: { owners: [...owners] } }),
      }),
    release: async (addresses) =>
      (await connection.call("deployment.release", { addresses: [...addresses] })).released,
    claim: (candidates) => connection.call("deployment.claim", { candidates: [...candidates] }),
    reserve: (candidates) => connection.call("deployment.reserve", { candidates: [...candidates] }),
  };
}

/**
 * Reads the members from the connection. A view may settle by time alone, without a message; so while the view settles,
 * the members are requested, and no more once they came with a settled view: in a large fleet the list is long.
 */
export function createMembersReader(
  connection: Pick<NodeConnection, "state" | "members" | "call">,
): ReadMembers {
  let settled: { from: MembersSnapshot; snapshot: MembersSnapshot } | undefined;

  return async () => {
    const received = connection.members;
    if (connection.state !== "ready" || !received) return undefined;
    if (received.view === "ready") return received;
    if (settled?.from === received) return settled.snapshot;
    const { view, members } = await listMembers(connection.call);
    const snapshot = { view, members: new Map(members.map((member) => [member.address, member])) };
    settled = view === "ready" ? { from: received, snapshot } : undefined;
    return snapshot;
  };
}
