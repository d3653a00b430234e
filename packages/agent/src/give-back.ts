import { CLAIM_CANDIDATES_MAX, type DeploymentTerm } from "@tenure/protocol";

/**
 * Gives deployments back as their children end, while this agent stops: one call at a time, each with everything that
 * ended meanwhile. A call that fails is not repeated, because the server frees the rest when this node has left.
 */
export function createGiveBack(send: (stopped: DeploymentTerm[]) => Promise<unknown>): {
  add(term: DeploymentTerm): void;
} {
  const ended: DeploymentTerm[] = [];
  let sending = false;

  async function pump(): Promise<void> {
    sending = true;
    while (ended.length > 0) await send(ended.splice(0, CLAIM_CANDIDATES_MAX)).catch(() => {});
    sending = false;
  }

  return {
    add(term) {
      ended.push(term);
      if (!sending) void pump();
    },
  };
}
