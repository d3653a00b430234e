import { CLAIM_CANDIDATES_MAX, type DeploymentTerm } from "@tenure/protocol";

/**
 * Releases deployments as their children end while this agent stops: one call at a time, each with all deployments that
 * ended meanwhile. A failed call is not retried, because the server releases the rest when this node has left.
 */
export interface ReleaseQueue {
  add(term: DeploymentTerm): void;
}

export function createReleaseQueue(
  release: (stopped: DeploymentTerm[]) => Promise<unknown>,
): ReleaseQueue {
  const ended: DeploymentTerm[] = [];
  let isSending = false;

  async function send(): Promise<void> {
    isSending = true;
    while (ended.length > 0) await release(ended.splice(0, CLAIM_CANDIDATES_MAX)).catch(() => {});
    isSending = false;
  }

  return {
    add(term) {
      ended.push(term);
      if (!isSending) void send();
    },
  };
}
