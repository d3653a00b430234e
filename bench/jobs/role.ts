import { createInterface } from "node:readline";
import type { TlsFiles } from "@tenure/sdk";
import { submitToBullmq, workForBullmq } from "./bullmq.ts";
import { drive, type Load, type Run, type SubmitJob, wallMs } from "./drive.ts";
import { type Storage, submitToJetstream, workForJetstream } from "./jetstream.ts";
import { submitToTenure, workForTenure } from "./tenure.ts";

export type System =
  | { system: "tenure"; url: string; tls?: TlsFiles | undefined }
  | { system: "bullmq"; port: number }
  | { system: "jetstream"; port: number; storage: Storage };

/** One process of the bench: a worker, or one that submits. */
export type Role =
  | ({ role: "worker"; capacity: number } & System)
  | ({ role: "load"; sessions: number } & System);

const role = JSON.parse(process.argv[2] ?? "{}") as Role;
if (role.role === "worker") await work(role);
else await submitAsTold(role);

async function work(worker: Extract<Role, { role: "worker" }>): Promise<void> {
  const begun: Run = async () => ({ beganMs: wallMs() });
  if (worker.system === "tenure") await workForTenure(worker, begun);
  else if (worker.system === "bullmq") await workForBullmq(worker, begun);
  else await workForJetstream(worker, begun);
  console.log("ready");
}

/** Loads come as lines on standard input; figures go out as lines. */
async function submitAsTold(load: Extract<Role, { role: "load" }>): Promise<void> {
  const submit = await submitterOf(load);
  console.log("ready");
  let n = 0;
  for await (const line of createInterface({ input: process.stdin })) {
    const figures = await drive(JSON.parse(line) as Load, submit);
    console.log(`figures ${++n} ${JSON.stringify(figures)}`);
  }
}

async function submitterOf(load: Extract<Role, { role: "load" }>): Promise<SubmitJob> {
  if (load.system === "tenure") return submitToTenure(load);
  return load.system === "bullmq" ? submitToBullmq(load) : submitToJetstream(load);
}
