import { randomUUID } from "node:crypto";
import { call, withClient } from "@tenure/testing/fleet/nonce-fleet";
import type { HistoryRecorder, RecordedEvent } from "@tenure/testing/history";
import { until } from "@tenure/testing/until";
import {
  type AllocateAsk,
  type AllocatedNumber,
  checkNonces,
  type MarkAsk,
  type NonceStores,
} from "../checkers/nonces.ts";
import { operationsOf } from "../checkers/operations.ts";
import type { Scene, Workload } from "../workload.ts";
import { type Caller, runCallers, toSettle } from "./callers.ts";

const CALLERS = 8;
const CALL_MS = 6_000;

/** Some signers are asked of one mode only, one of both at once: each must hold, and together too. */
const SIGNERS: Record<string, (mode: string) => boolean> = {
  "basic-0": (mode) => mode === "basic",
  "queue-0": (mode) => mode === "worker_queue",
  "queue-1": (mode) => mode === "worker_queue",
  "both-0": () => true,
};

/** I9, I11: callers ask for numbers, repeat themselves, use some and give some back, at whichever instance. */
export const nonces: Workload = {
  name: "nonces",
  promises: "I9",
  clients: 1,
  uses: ["hosts"],
  survivesHotLoss: true,
  survivesStoreClock: true,
  async load(context) {
    const { scene, history } = context;
    const asked: AllocateAsk[] = [];
    await runCallers(context, CALLERS, async (caller) => {
      const again = asked.length > 0 && caller.chance(0.2);
      const ask = again ? caller.oneOf(asked) : newAsk(caller);
      if (!again) asked.push(ask);
      const url = urlFor(scene, ask.signer, caller);
      const numbers = await allocate(history, { caller: caller.name, url, ask }).catch(() => []);
      for (const number of again ? [] : numbers) await use(context, caller, ask.signer, number);
      await caller.pause(5, numbers.length > 0 ? 40 : 150);
    });
  },
  async settle({ scene, history, events, deadlineMs }) {
    const asks = toSettle(
      operationsOf<AllocateAsk>(events, "allocate"),
      ({ signer, request_id }) => `${signer} ${request_id}`,
    );
    // And one more at every instance: work goes on everywhere, not only where it was last.
    for (const [index] of scene.urls.entries())
      for (const signer of Object.keys(SIGNERS))
        asks.set(`${signer} last ${index}`, { signer, request_id: `last-${index}`, count: 1 });
    let place = 0;
    for (const some of chunks([...asks.values()], 40)) {
      await Promise.all(
        some.map((ask) => settleOne(scene, history, ask, { place: place++, deadlineMs })),
      );
    }
  },
  hazards: {
    numbers: [],
    repeated_requests: [],
    reused_numbers: [],
    unknown_outcomes: ["instance.kill", "instance.postgres-cut", "edge-reset"],
    changes_of_term: ["instance.kill", "instance.freeze:6000"],
    foreign_marks_refused: [],
  },
  read,
  check: (events: RecordedEvent[], stores: NonceStores) =>
    checkNonces(
      operationsOf<AllocateAsk, AllocatedNumber[]>(events, "allocate"),
      operationsOf<MarkAsk>(events, "mark"),
      stores,
    ),
};

function newAsk(caller: Caller): AllocateAsk {
  const count = caller.chance(0.15) ? 3 : 1;
  return { signer: caller.oneOf(Object.keys(SIGNERS)), request_id: randomUUID(), count };
}

function urlFor({ urls, nonceModes }: Scene, signer: string, caller: Caller): string {
  return caller.oneOf(urls.filter((_, index) => SIGNERS[signer]!(nonceModes[index]!)));
}

/** No refusal proves that nothing happened: it may be the answer to a second try whose first one is still under way. */
async function allocate(
  history: HistoryRecorder,
  { caller, url, ask }: { caller: string; url: string; ask: AllocateAsk },
): Promise<AllocatedNumber[]> {
  const { signer, request_id, count } = ask;
  return history.run({ process: caller, f: "allocate", value: ask }, async () => {
    const body = count === 1 ? { request_id } : { request_id, count };
    const answer = await call(url, `/signers/${signer}/nonces`, { body, timeoutMs: CALL_MS });
    if (answer.status !== 200) throw new Error(answer.body?.error?.code ?? answer.status);
    const items: AllocatedNumber[] = answer.body.items ?? [answer.body];
    return items.map(({ nonce, hold_id, fencing_token }) => ({ nonce, hold_id, fencing_token }));
  });
}

/** Most are used, some given back; some are given back and then used after all, which must not hurt a new holder. */
async function use(
  { scene, history }: { scene: Scene; history: HistoryRecorder },
  caller: Caller,
  signer: string,
  { nonce, hold_id }: AllocatedNumber,
): Promise<void> {
  const mark = async (as: MarkAsk["as"]): Promise<void> => {
    const url = urlFor(scene, signer, caller);
    const tx_hash = `0x${hold_id.replaceAll("-", "")}`;
    const asked: MarkAsk = { signer, nonce, hold_id, as, ...(as === "used" && { tx_hash }) };
    const body = as === "used" ? { hold_id, tx_hash } : { hold_id, reason: "not sent" };
    const path = `/signers/${signer}/nonces/${nonce}/${as}`;
    const send = async () => {
      const answer = await call(url, path, { body, timeoutMs: CALL_MS });
      if (answer.status !== 200) throw new Error(answer.body?.error?.code ?? answer.status);
      // Marked, and still another's: then it was not this hold that was marked.
      if (answer.body.hold_id !== hold_id) throw new Error("ANOTHER_HOLD");
      return { status: answer.body.status };
    };
    // A number may have been given back by a first try that nobody was told of, and be another's at the second.
    const isRefusal = (error: unknown) =>
      as === "used" && /HOLD_MISMATCH|CONFLICT/.test(String(error));
    await history
      .run({ process: caller.name, f: "mark", value: asked }, send, isRefusal)
      .catch(() => {});
  };
  if (caller.chance(0.55)) return mark("used");
  if (!caller.chance(0.75)) return;
  await mark("recyclable");
  await caller.pause(50, 400);
  if (caller.chance(0.5)) await mark("used");
}

async function settleOne(
  scene: Scene,
  history: HistoryRecorder,
  ask: AllocateAsk,
  { place, deadlineMs }: { place: number; deadlineMs: number },
): Promise<void> {
  const urls = scene.urls.filter((_, index) => SIGNERS[ask.signer]!(scene.nonceModes[index]!));
  const caller = `settle/${place}`;
  let attempt = 0;
  await until(
    () => allocate(history, { caller, url: urls[(place + attempt++) % urls.length]!, ask }),
    {
      deadlineMs,
      everyMs: 100,
      what: `an answer to ${ask.signer} ${ask.request_id}`,
    },
  );
}

async function read({ postgresUri }: Scene): Promise<NonceStores> {
  const mine = `signer = any($1)`;
  return withClient(postgresUri, async (client) => {
    const rows = async (text: string) => (await client.query(text, [Object.keys(SIGNERS)])).rows;
    return {
      allocations: await rows(
        `select signer, nonce::int, status, hold_id, tx_hash from signer_nonce_allocation where ${mine}`,
      ),
      requests: await rows(
        `select signer, request_id, n, nonce::int, hold_id from signer_nonce_request where ${mine}`,
      ),
      cursors: await rows(
        `select signer, next_local_nonce::int as next_nonce from signer_nonce_state where ${mine}`,
      ),
    };
  });
}

function chunks<T>(items: readonly T[], size: number): T[][] {
  const starts = Array.from({ length: Math.ceil(items.length / size) }, (_, at) => at * size);
  return starts.map((start) => items.slice(start, start + size));
}
