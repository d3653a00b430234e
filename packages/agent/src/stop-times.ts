import type { DeploymentReport, DeploymentTerm } from "@tenure/protocol";

/** When this node, out of contact, must have begun to stop each of its deployments. */
export interface StopTimes {
  /** A report is on its way. From now on the server may go by its value, if that is the shorter one. */
  sent(report: DeploymentReport): void;
  /** The server has it, and goes by this `lost_after_ms`. `undefined`: it is one that does not keep it. */
  heard(report: DeploymentReport, lostAfterMs: number | undefined): void;
  /** After how much silence the deployment is stopped. */
  of(term: DeploymentTerm): number;
  /** Forgets all others. */
  keep(terms: readonly DeploymentTerm[]): void;
}

/** For the way of the last heartbeat, and for clocks that do not run alike. */
const MARGIN_MS = 5_000;

/**
 * Another node may own a deployment `lost_after_ms` after this one was last heard: until shortly before that it goes on
 * here. Only a value that the server has acknowledged counts, because the release statement waits for that one too,
 * also when the row says less by then. Without one it is `selfStopMs`.
 */
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
    heard({ deployment_id, generation }, lostAfterMs = 0) {
      known.set(deployment_id, { generation, lostAfterMs });
    },
    of: (term) => Math.max(selfStopMs, lostAfterOf(term) - stopGraceMs - MARGIN_MS),
    keep(terms) {
      const kept = terms.flatMap(({ id }) => {
        const term = known.get(id);
        return term ? [[id, term] as const] : [];
      });
      known = new Map(kept);
    },
  };
}
