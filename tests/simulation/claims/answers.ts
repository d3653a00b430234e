import {
  type CallParams,
  type DeploymentTerm,
  type NodeMethod,
  type ResourceUsage,
  TenureError,
  type ViewState,
} from "@tenure/protocol";
import { matchWhole } from "@tenure/protocol/pattern";
import {
  answerList,
  type ListReader,
  listParts,
} from "../../../packages/server/src/deployments/cache/list-delta.ts";
import { answerSubset } from "../../../packages/server/src/deployments/cache/list-subset.ts";
import type {
  DeploymentRow,
  NodeTerm,
} from "../../../packages/server/src/deployments/deployment-row.ts";
import { createReleaseFlight } from "../../../packages/server/src/deployments/release-flight.ts";
import type { ClaimOutcome } from "../../../packages/server/src/deployments/store/claim-store.ts";
import type { Arbiter } from "./arbiter.ts";
import type { Copy } from "./copy.ts";
import type { Store } from "./instance.ts";

/** A busy instance cuts its answers: here each list of more than a few rows comes in pages. */
const ANSWER_BYTES_MAX = 4 * 1_024;

export interface AnswersOptions {
  origin: string;
  arbiter: Arbiter;
  store: Store;
  copy: Copy;
  view: () => ViewState;
  samples: () => Record<string, ResourceUsage>;
  refused: () => ReadonlyMap<string, readonly string[]>;
  /** Planted bugs. */
  trustsCallers: boolean;
  releasesWhileSettling: boolean;
}

export interface Caller extends NodeTerm {
  reader: ListReader;
}

export type Answer = (
  caller: Caller,
  method: Exclude<NodeMethod, "member.list">,
  params: unknown,
) => Promise<unknown>;

/** What `deployments.ts` of the server does around its statements, for each call of a node. */
export function createAnswers(options: AnswersOptions): Answer {
  const { origin, arbiter, store, copy } = options;

  async function list({ reader }: Caller, { revision, subset }: CallParams<"deployment.list">) {
    if (!revision?.startsWith(`${origin}.`)) await copy.refresh();
    if (!copy.isRead()) throw away("the deployments have not been read yet");
    const { cache } = copy;
    const { samples } = options;
    const list = {
      ...{ cache, origin, reader, revision, samples },
      ...{ matches: matchWhole, answerBytesMax: ANSWER_BYTES_MAX },
    };
    const answer = subset
      ? answerSubset({ ...list, owners: subset.owners, refused: options.refused() })
      : answerList(list);
    return JSON.parse(Buffer.concat(listParts(answer)).toString());
  }

  const releaseOnce = createReleaseFlight({
    owns: copy.cache.owns,
    async run(caller: Caller, addresses) {
      const freed = await store(() => arbiter.releaseLost(caller, addresses));
      if (freed.outcome === "released" && freed.released.length > 0) await copy.refresh();
      return freed;
    },
  });

  async function release(caller: Caller, { addresses }: CallParams<"deployment.release">) {
    const { address } = caller;
    if (caller.reader.claim_policy === "none" && !options.trustsCallers)
      throw new TenureError("ERR_POLICY_DISABLED", { address });
    if (options.view() !== "ready" && !options.releasesWhileSettling) return { released: [] };
    const freed = await releaseOnce(caller, addresses);
    if (!freed) return { released: [] };
    if (freed.outcome === "refused") throw refusal(freed, address);
    return { released: freed.released.map(({ id, generation }) => ({ id, generation })) };
  }

  async function take(
    caller: Caller,
    { candidates }: { candidates: DeploymentTerm[] },
    statement: Arbiter["claimFirstFree"],
  ): Promise<DeploymentTerm> {
    const taken = await store(() => statement(caller, candidates));
    if (taken.outcome !== "claimed") throw refusal(taken, caller.address);
    await copy.refresh();
    return taken.claim;
  }

  async function report({ address, epoch }: Caller, said: CallParams<"deployment.report">) {
    const { deployment_id: id, generation, state } = said;
    const { row, isCurrent } = await store(() => {
      const unit = arbiter.nodes.get(address);
      return { row: arbiter.deployments.get(id), isCurrent: unit?.epoch === epoch && unit.online };
    });
    if (!row) throw new TenureError("NOT_FOUND", { what: "deployment", id });
    const concerns = row.type === "daemon" || [row.address, row.moving_to].includes(address);
    if (row.generation !== generation || !concerns || !isCurrent)
      throw new TenureError("FENCED", { resource: id, fencing_token: generation });
    await move({ id, address, generation }, state, row);
    return {};
  }

  async function move(
    step: { id: string; address: string; generation: number },
    state: string,
    { address, moving_to, move_state }: DeploymentRow,
  ): Promise<void> {
    if (moving_to === "") return;
    if (step.address === moving_to) {
      if (state === "failed" || state === "refused") await store(() => arbiter.giveMoveBack(step));
      else if (state === "stopped" && move_state === "installing")
        await store(() => arbiter.markMoveReady(step));
    } else if (step.address === address && state === "stopped" && move_state === "ready") {
      await store(() => arbiter.markStopped(step));
    }
  }

  return async (caller, method, params) => {
    switch (method) {
      case "deployment.list":
        return list(caller, params as CallParams<"deployment.list">);
      case "deployment.release":
        return release(caller, params as CallParams<"deployment.release">);
      case "deployment.claim":
        return take(caller, params as CallParams<"deployment.claim">, arbiter.claimFirstFree);
      case "deployment.reserve":
        return take(caller, params as CallParams<"deployment.reserve">, arbiter.reserveFirst);
      case "deployment.report":
        return report(caller, params as CallParams<"deployment.report">);
    }
  };
}

export const away = (reason: string): TenureError =>
  new TenureError("DEPENDENCY_DOWN", { dependency: "the server", reason });

function refusal(
  outcome: Exclude<ClaimOutcome, { outcome: "claimed" }>,
  address: string,
): TenureError {
  if (outcome.outcome === "conflict")
    return new TenureError("ERR_CLAIM_CONFLICT", { candidates: 0 });
  switch (outcome.why) {
    case "policy_none":
      return new TenureError("ERR_POLICY_DISABLED", { address });
    case "draining":
      return new TenureError("CONFLICT", { reason: `node ${address} is draining` });
    case "replaced":
      return new TenureError("FENCED", { resource: `node ${address}`, fencing_token: 0 });
  }
}
