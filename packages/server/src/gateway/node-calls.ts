import type { Deployments } from "../deployments/deployments.ts";
import type { MembersService } from "../membership/members.ts";
import type { NodeCalls } from "./node-socket.ts";

/** What a node may ask: one line per method, each one call to the domain that knows. */
export function createNodeCalls(
  members: Pick<MembersService, "current">,
  deployments: Pick<Deployments, "list" | "release" | "claim" | "reserve" | "report">,
): NodeCalls {
  return {
    async answer(node, request) {
      switch (request.method) {
        case "member.list": {
          const { seq, view, members: list } = members.current();
          return { seq, view, members: list };
        }
        case "deployment.list":
          return deployments.list(node, request.params);
        case "deployment.release":
          return deployments.release(node, request.params);
        case "deployment.claim":
          return deployments.claim(node, request.params);
        case "deployment.reserve":
          return deployments.reserve(node, request.params);
        case "deployment.report":
          return deployments.report(node, request.params);
      }
    },
  };
}
