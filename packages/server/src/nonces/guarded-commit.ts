import assert from "node:assert";
import { TenureError } from "@tenure/protocol";
import type { Db } from "../store/db.ts";
import {
  type CommitAnswer,
  commitNonces,
  type NonceRules,
  type SignerCommit,
} from "./store/nonce-store.ts";
import type { Timeline } from "./timeline.ts";
import { newest, type Position } from "./witness.ts";

interface CommitRequest {
  commits: SignerCommit[];
  waitMs?: number;
}

/**
 * `commitNonces` on a history that was checked, answered when the witnesses know of it: a number is not given out
 * before. A raise goes without the check; it gives nothing out, and an operator raises before confirming.
 */
export function createGuardedCommit({
  db,
  rules,
  timeline,
}: {
  db: Db;
  rules: NonceRules;
  timeline: Timeline;
}): (request: CommitRequest) => Promise<CommitAnswer[]> {
  async function commitChecked(request: CommitRequest): Promise<CommitAnswer[]> {
    // Twice: the first answer may be that Postgres was restarted since the last check.
    for (const isLast of [false, true]) {
      const checked = await timeline.checked();
      const answers = await commitNonces(db, { ...request, rules, checked });
      const positionAfter = (answer: CommitAnswer, k: number): Position | undefined =>
        answer.outcome === "done"
          ? reached(checked, request.commits[k]!.signer, answer)
          : undefined;
      if (answers.every(({ outcome }) => outcome !== "unchecked")) {
        const newestOf = newest(...answers.map(positionAfter));
        if (newestOf) await timeline.note(newestOf);
        return answers;
      }
      timeline.doubt(checked);
      if (isLast) break;
    }
    throw new TenureError("DEPENDENCY_DOWN", { dependency: "postgres", reason: "timeline" });
  }

  return async (request) => {
    const raises = request.commits.filter(isRaise);
    if (raises.length === 0) return commitChecked(request);
    const raised = await commitNonces(db, { ...request, commits: raises, rules });
    const others = request.commits.filter((commit) => !isRaise(commit));
    const answers = others.length > 0 ? await commitChecked({ ...request, commits: others }) : [];
    return request.commits.map((commit) => {
      const answer = (isRaise(commit) ? raised : answers).shift();
      assert(answer, `no answer for ${commit.signer}`);
      return answer;
    });
  };
}

function reached(
  checked: Position,
  signer: string,
  { wal, fencingToken, nextNonce }: Extract<CommitAnswer, { outcome: "done" }>,
): Position {
  return { ...checked, wal, signer, fencing_token: fencingToken, next_nonce: nextNonce };
}

const isRaise = ({ nextNonce }: SignerCommit): boolean => nextNonce !== undefined;
