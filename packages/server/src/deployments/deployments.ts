import {
  type CallParams,
  type DeploymentTerm,
  type ResourceUsage,
  TenureError,
} from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import type { ChildTokens } from "../access/child-tokens.ts";
import { batchWhileBusy } from "../kernel/batch.ts";
import type { Log } from "../kernel/log.ts";
import { restMs } from "../kernel/rest.ts";
import { every } from "../kernel/service.ts";
import type { Secrets } from "../secrets/secrets.ts";
import type { PostgresStore } from "../store/db.ts";
import type { Telemetry } from "../telemetry.ts";
import { createCachedDeployments, type RowChange } from "./cache/cached-deployments.ts";
import { answerList, type WrittenList } from "./cache/list-delta.ts";
import { createListPace, type PacedAnswer } from "./cache/list-pace.ts";
import { answerSubset } from "./cache/list-subset.ts";
import { type ChangeNotifierOptions, createChangeNotifier } from "./change-notifier.ts";
import { createDeliverSecrets } from "./deliver-secrets.ts";
import { type DeploymentNode, readerOf, refusal, termOf } from "./deployment-node.ts";
import { createRelease, type ReleaseOptions } from "./release.ts";
import { createReport, type ReportOptions } from "./report.ts";
import { claimFirstFree, reserveFirst } from "./store/claim-store.ts";
import { beginPinnedMoves, dropDeadMoves, finishPinnedMoves } from "./store/move-store.ts";

export interface DeploymentsOptions
  extends Pick<ChangeNotifierOptions, "origin" | "connected" | "onChange">,
    Pick<ReleaseOptions, "view" | "brakeTtlMs" | "clock"> {
  db: PostgresStore;
  log: Log;
  secrets: Pick<Secrets, "open" | "spread">;
  childTokens: Pick<ChildTokens, "maker">;
  /** Rows of the table changed, at any instance. Called before node-units learn of it. */
  onRows: (changes: readonly RowChange[]) => void;
  /** Fresh samples of the node-units that share one of these tenants, by address. */
  samples: (tenants: readonly string[] | undefined) => Record<string, ResourceUsage>;
  telemetry: Pick<Telemetry, "deploymentClaims" | "deploymentLists"> &
    ChangeNotifierOptions["telemetry"] &
    ReleaseOptions["telemetry"] &
    ReportOptions["telemetry"];
}

export type Deployments = ReturnType<typeof createDeployments>;

const MOVES_INTERVAL_MS = 5_000;
const NEWCOMERS_REST_MS_MAX = 100;
/** The first sweep considers every secret, the others those that were set since the sweeps before. */
const SECRETS_SET_WITHIN_SECONDS = 600;

/** Answers the calls of node-units: `deployment.list`, `.release`, `.claim`, `.reserve`, `.report` and `.secrets`. */
export function createDeployments(options: DeploymentsOptions) {
  const { origin, db, clock, log, telemetry } = options;
  const cached = createCachedDeployments({
    ...{ db, clock, log },
    onRefresh(refresh) {
      options.onRows(refresh.changes);
      return notifier.onRefresh(refresh);
    },
  });
  const notifier = createChangeNotifier({ ...options, cache: () => cached.cache });
  const pace = createListPace();
  /** For nodes whose list is from elsewhere. When a fleet comes back, the hundreds that wait share one refresh. */
  const refreshForNewcomers = batchWhileBusy<undefined, void>(
    async (newcomers) => {
      await cached.refresh();
      return newcomers.map(() => undefined);
    },
    {
      async rest() {
        const ms = Math.min(NEWCOMERS_REST_MS_MAX, restMs(options.connected().length));
        if (ms > 0) await clock.sleep(ms);
      },
    },
  );
  const wakeAll = () => notifier.wakeNodes([{ tenants: undefined, all: true, nodes: [] }]);
  let spreadWithin: number | undefined;
  const moves = every(MOVES_INTERVAL_MS, sweepMoves, {
    clock,
    onError: (error) =>
      log.warn({ event: "moves.not-swept", error }, "could not sweep the moves; will retry"),
  });

  async function sweepMoves(): Promise<void> {
    await dropDeadMoves(db);
    await finishPinnedMoves(db);
    await beginPinnedMoves(db);
    await options.secrets.spread(spreadWithin);
    spreadWithin = SECRETS_SET_WITHIN_SECONDS;
  }

  async function list(
    node: DeploymentNode,
    { revision, subset }: CallParams<"deployment.list">,
  ): Promise<PacedAnswer<WrittenList>> {
    termOf(node);
    // A node that comes from another instance may have seen more than this cache has: an older list would make it stop
    // what it has just claimed.
    if (!revision?.startsWith(`${origin}.`)) await refreshForNewcomers(undefined);
    if (!cached.isRead()) {
      const reason = "the deployments have not been read yet";
      throw new TenureError("DEPENDENCY_DOWN", { dependency: "postgres", reason });
    }
    const tokenOf = await options.childTokens.maker();
    const paced = await pace.answer(node.link, (answerBytesMax) => {
      const list = {
        ...{ cache: cached.cache, origin, reader: readerOf(node), revision, answerBytesMax },
        ...{ matches: matchWhole, samples: options.samples, tokenOf },
      };
      return subset
        ? answerSubset({ ...list, owners: subset.owners, refused: cached.refused() })
        : answerList(list);
    });
    telemetry.deploymentLists.inc({ answer: paced.answer.answer });
    return paced;
  }

  async function take(
    node: DeploymentNode,
    candidates: DeploymentTerm[],
    statement: typeof claimFirstFree,
  ): Promise<DeploymentTerm> {
    const term = termOf(node);
    const taken = await statement(db, term, candidates);
    telemetry.deploymentClaims.inc({ result: taken.outcome });
    if (taken.outcome !== "claimed") throw refusal(taken, term, candidates.length);
    // The next `deployment.list` must have the row, or the node would not know what to start.
    await cached.refresh();
    return taken.claim;
  }

  return {
    refresh: cached.refresh,
    list,
    release: createRelease({ ...options, cached, wakeAll }),
    claim: (node: DeploymentNode, { candidates }: CallParams<"deployment.claim">) =>
      take(node, candidates, claimFirstFree),
    reserve: (node: DeploymentNode, { candidates }: CallParams<"deployment.reserve">) =>
      take(node, candidates, reserveFirst),
    report: createReport({ db, cached, telemetry }),
    secrets: createDeliverSecrets(options),
    start() {
      cached.start();
      moves.start();
    },
    async stop() {
      await Promise.all([cached.stop(), moves.stop()]);
    },
  };
}
