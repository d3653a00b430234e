import { TenureError } from "@tenure/protocol";
import type { MembersService } from "../membership/members.ts";
import type { NodeCalls } from "./node-socket.ts";

/** What a node may ask: one line per method, each one call to the domain that knows. */
export function createNodeCalls(members: Pick<MembersService, "current">): NodeCalls {
  return {
    async answer(_, request) {
      switch (request.method) {
        case "member.list": {
          const { seq, view, members: list } = members.current();
          return { seq, view, members: list };
        }
        case "deployment.list":
        case "deployment.release":
        case "deployment.claim":
        case "deployment.report":
          throw new TenureError("NOT_FOUND", { what: "method", id: request.method });
      }
    },
  };
}
