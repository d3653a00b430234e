import type { DeploymentReport, DeploymentTerm } from "@tenure/protocol";

/**
 * When this node, out of contact, must begin to stop each of its deployments.
 *
 * Another node may own a deployment `lost_after_ms` after this node's last contact; until shortly before that the child
 * runs on. Only a value that the server has acknowledged counts, because the release statement waits for that value too,
 * even when the row has a smaller one by then. Without an acknowledged value the time is `selfStopMs`.
 */
export interface StopTimes {
  /** Records that a report is on its way: from now on the server may use its value, if that is the smaller one. */
  sent(report: DeploymentReport): void;
  /** Records the `lost_after_ms` the server uses. `undefined`: the server's version does not store it. */
  acknowledged(report: DeploymentReport, lostAfterMs: number | undefined): void;
  /** The time without contact after which the deployment is stopped. */
  of(term: DeploymentTerm): number;
  /** Drops all other deployments. */
  retain(terms: readonly DeploymentTerm[]): void;
}

/** Covers the delay of the last heartbeat and clocks that drift. */
const MARGIN_MS = 5_000;

export function createStopTimes({
  selfStopMs,
  stopGraceMs,
}: {
  selfStopMs: number;
  stopGraceMs: number;
}): StopTimes {
  let known = new Map<string, { generation: number; lostAfterMs: number }>();
  const lostAfterOf = ({ id, generation }: DeploymentTerm): number => {
    const term = known.get(id);
    return term?.generation === generation ? term.lostAfterMs : 0;
  };

  return {
    sent({ deployment_id: id, generation, lost_after_ms = 0 }) {
      const lostAfterMs = Math.min(lostAfterOf({ id, generation }), lost_after_ms);
      known.set(id, { generation, lostAfterMs });
    },
    acknowledged({ deployment_id, generation }, lostAfterMs = 0) {
      known.set(deployment_id, { generation, lostAfterMs });
    },
    of: (term) => Math.max(selfStopMs, lostAfterOf(term) - stopGraceMs - MARGIN_MS),
    retain(terms) {
      const kept = terms.flatMap(({ id }) => {
        const term = known.get(id);
        return term ? [[id, term] as const] : [];
      });
      known = new Map(kept);
    },
  };
}
