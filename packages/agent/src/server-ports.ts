import { listMembers, type NodeConnection } from "@tenure/sdk";
import type { LoopPorts, MembersSeen } from "./loop/loop-ports.ts";

type Look = LoopPorts["members"];

/** The loop's calls, over a connection. Each has the connection's time limit, which is below the interval. */
export function serverPorts({
  connection,
  look,
  ...rest
}: {
  connection: Pick<NodeConnection, "call">;
  look: Look;
} & Omit<LoopPorts, "members" | "list" | "release" | "claim" | "reserve">): LoopPorts {
  return {
    ...rest,
    members: look,
    list: (revision) =>
      connection.call("deployment.list", { ...(revision !== undefined && { revision }) }),
    release: async (addresses) =>
      (await connection.call("deployment.release", { addresses: [...addresses] })).released,
    claim: (candidates) => connection.call("deployment.claim", { candidates: [...candidates] }),
    reserve: (candidates) => connection.call("deployment.reserve", { candidates: [...candidates] }),
  };
}

/**
 * Who is there. A view settles without an event when time alone settles it, so while it does the list is asked for;
 * and only once, because in a large fleet it is long.
 */
export function createMembersLook(
  connection: Pick<NodeConnection, "state" | "members" | "call">,
): Look {
  let settled: { after: MembersSeen; seen: MembersSeen } | undefined;

  return async () => {
    const heard = connection.members;
    if (connection.state !== "ready" || !heard) return undefined;
    if (heard.view === "ready") return heard;
    if (settled?.after === heard) return settled.seen;
    const { view, members } = await listMembers(connection.call);
    const seen = { view, members: new Map(members.map((member) => [member.address, member])) };
    settled = view === "ready" ? { after: heard, seen } : undefined;
    return seen;
  };
}
