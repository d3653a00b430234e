import type { Condition, Started } from "../../store/call.ts";
import { getCommand } from "../../store/command.ts";
import type { HotStore } from "../../store/hot-store.ts";
import { defineScript } from "../../store/script.ts";
import { jobKeys, type RequestName } from "./keys.ts";
import { unchecked, uncheckedReply } from "./unchecked.ts";

const bindScript = defineScript<
  "binding",
  Record<"job" | "body_hash" | "former" | "ttl_ms", string>,
  readonly ["bound"] | readonly ["taken" | "reused", string]
>({
  file: new URL("./lua/bind-request.lua", import.meta.url),
  keys: ["binding"],
  texts: ["job", "body_hash", "former", "ttl_ms"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { binding }, args) => {
  const held = parseBinding(space.get(binding));
  if (held?.jobId === args.job) return ["bound"];
  if (held && held.jobId !== args.former)
    return [held.bodyHash === args.body_hash ? "taken" : "reused", held.jobId];
  space.set(binding, `${args.job} ${args.body_hash}`, Number(args.ttl_ms));
  return ["bound"];
});

const readText = getCommand("read-binding");

const keepScript = defineScript<
  "binding",
  Record<"job" | "keep_ms", string>,
  readonly ["kept" | "not_ours"]
>({
  file: new URL("./lua/keep-binding.lua", import.meta.url),
  keys: ["binding"],
  texts: ["job", "keep_ms"],
  args: unchecked(),
  reply: uncheckedReply(),
}).inMemory((space, { binding }, { job, keep_ms }) => {
  if (parseBinding(space.get(binding))?.jobId !== job) return ["not_ours"];
  space.expire(binding, Number(keep_ms));
  return ["kept"];
});

/** A job that competes for a request id. */
export interface BindingCandidate extends RequestName {
  jobId: string;
  bodyHash: string;
  /** `bindingTtlMs`: longer than the job can take. When the job is released, `keepBinding` corrects it. */
  ttlMs: number;
}

/** `taken`: another job with the same body has the request; follow it. `reused`: a job with another body has it. */
export type Bound = { outcome: "bound" } | { outcome: "taken" | "reused"; jobId: string };

/**
 * Step 3 of a submit: decides which of the jobs created for one request is its job. The winner gets the same answer again. A
 * lock before it would only save the loser the record it wrote.
 *
 * `formerJobId`: a job for which `voidJob` has answered `void`; a binding to it is replaced.
 */
export const bind = (
  hot: HotStore,
  candidate: BindingCandidate,
  formerJobId = "",
): Promise<Bound> => startBind(hot, candidate, formerJobId).answer;

/** For steps that depend on it; `isBound` is their condition. */
export function startBind(
  hot: HotStore,
  { tenant, requestId, jobId, bodyHash, ttlMs }: BindingCandidate,
  formerJobId = "",
): Started<Bound> {
  const binding = jobKeys.binding(hot.prefix, { tenant, requestId });
  const args = { job: jobId, body_hash: bodyHash, former: formerJobId, ttl_ms: String(ttlMs) };
  const call = hot.start(bindScript, { binding }, args);
  const answer = call.reply.then(
    (reply): Bound =>
      reply[0] === "bound" ? { outcome: "bound" } : { outcome: reply[0], jobId: reply[1] },
  );
  return { call, answer };
}

export const isBound = ({ call }: Started<Bound>): Condition => ({ call, at: 0, is: "bound" });

export interface Binding {
  jobId: string;
  bodyHash: string;
}

export async function readBinding(
  hot: HotStore,
  request: RequestName,
): Promise<Binding | undefined> {
  return parseBinding(await readText(hot, jobKeys.binding(hot.prefix, request)));
}

/**
 * Lets the binding expire together with the record of its job, whose expiry is set at the release. Until then the binding has
 * the expiry of the submit, which is long enough for the slowest job.
 */
export async function keepBinding(
  hot: HotStore,
  { tenant, requestId, jobId }: RequestName & { jobId: string },
  keepMs: number,
): Promise<void> {
  const binding = jobKeys.binding(hot.prefix, { tenant, requestId });
  await hot.run(keepScript, { binding }, { job: jobId, keep_ms: String(keepMs) });
}

/** The same on conditions. Returns the condition that it was done. */
export function keepBindingIf(
  hot: HotStore,
  when: { all: readonly Condition[] },
  { tenant, requestId, jobId, keepMs }: RequestName & { jobId: string; keepMs: number },
): Condition {
  const binding = jobKeys.binding(hot.prefix, { tenant, requestId });
  const args = { job: jobId, keep_ms: String(keepMs) };
  const call = hot.startIf(when, keepScript, { binding }, args);
  call.reply.catch(() => {}); // then the condition does not hold
  return { call, at: 0 };
}

function parseBinding(text: string | undefined): Binding | undefined {
  const [jobId, bodyHash] = text?.split(" ") ?? [];
  return jobId && bodyHash ? { jobId, bodyHash } : undefined;
}
