import { TenureError } from "@tenure/protocol";
import { listParts, type WrittenList } from "../deployments/cache/list-delta.ts";
import type { PacedAnswer } from "../deployments/cache/list-pace.ts";
import type { Deployments } from "../deployments/deployments.ts";
import type { CallAnswer, NodeCalls } from "./node-socket.ts";

/** The calls of a node: one line per method, each one call to its domain. */
export function createNodeCalls(
  deployments: Pick<Deployments, "list" | "release" | "claim" | "reserve" | "report" | "secrets">,
): NodeCalls {
  return {
    async answer(node, request) {
      switch (request.method) {
        case "member.list":
          // A worker runs no deployments, so it must not see the labels and patterns of the fleet.
          if (!node.isNodeUnit)
            throw new TenureError("FORBIDDEN", { reason: "only a node-unit may list the members" });
          return { parts: [node.listMembers(request.params.after)] };
        case "deployment.list":
          return listed(await deployments.list(node, request.params));
        case "deployment.release":
          return json(await deployments.release(node, request.params));
        case "deployment.claim":
          return json(await deployments.claim(node, request.params));
        case "deployment.reserve":
          return json(await deployments.reserve(node, request.params));
        case "deployment.report":
          return json(await deployments.report(node, request.params));
        case "deployment.secrets":
          return json(await deployments.secrets(node, request.params));
      }
    },
  };
}

const json = (result: unknown): CallAnswer => ({ parts: [Buffer.from(JSON.stringify(result))] });

const listed = ({ answer, written }: PacedAnswer<WrittenList>): CallAnswer => ({
  parts: listParts(answer),
  written,
});
