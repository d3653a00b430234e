import { randomUUID } from "node:crypto";
import {
  call,
  checkSigner,
  seeded,
  startFleet,
  stopFleet,
  type Told,
} from "@tenure/testing/fleet/nonce-fleet";
import { startPostgres } from "@tenure/testing/stores/postgres";

export const name = "nonces-contention";
export const summary =
  "four servers, one signer, 64 callers at random servers: no duplicate, dense, nobody starves";

const CALLERS = 64;

export async function run(options: {
  size: "ci" | "full";
  seed: number;
  print: (line: string) => void;
}): Promise<void> {
  const allocations = options.size === "full" ? 20_000 : 600;
  const postgres = await startPostgres();
  try {
    const fleets = [
      ["basic", ["basic", "basic", "basic", "basic"]],
      ["worker_queue", ["worker_queue", "worker_queue", "worker_queue", "worker_queue"]],
      ["both modes", ["basic", "worker_queue", "basic", "worker_queue"]],
    ] as const;
    for (const [title, modes] of fleets)
      await contend({
        ...options,
        title,
        modes,
        // Basic servers wait while a Worker-Queue one keeps the lease of a busy signer: correct, and slow.
        allocations: title === "both modes" ? allocations / 10 : allocations,
        uri: postgres.uri(),
      });
  } finally {
    await postgres.discard();
  }
}

async function contend(options: {
  title: string;
  modes: readonly string[];
  allocations: number;
  seed: number;
  uri: string;
  print: (line: string) => void;
}): Promise<void> {
  const { title, allocations, uri, print } = options;
  const random = seeded(options.seed);
  const env = { TENURE_NONCE_HOLD_TTL_MS: "3600000" };
  const fleet = await startFleet(
    uri,
    options.modes.map((mode) => ({ env: { ...env, TENURE_NONCE_MODE: mode } })),
  );
  const signer = `prove-${randomUUID()}`;
  const told: Told[] = [];
  const successes = fleet.map(() => 0);
  let left = allocations;
  let retried = 0;
  const startedMs = performance.now();

  /** Until it is answered, at a random server each time, under the same request id. */
  async function persist(
    path: string,
    body: object,
  ): Promise<{ body: Told & { hold_id: string }; at: number }> {
    for (;;) {
      const at = Math.floor(random() * fleet.length);
      const answer = await call(fleet[at]!.url, path, { body, timeoutMs: 30_000 });
      if (answer.status === 200) return { body: answer.body, at };
      if (!["LEASE_HELD", "FENCED", "QUEUE_FULL"].includes(answer.body.error.code))
        throw new Error(`${path} was answered ${JSON.stringify(answer.body)}`);
      retried += 1;
    }
  }

  async function caller(): Promise<void> {
    while (left-- > 0) {
      const requestId = randomUUID();
      const path = `/signers/${signer}/nonces`;
      const { body, at } = await persist(path, { request_id: requestId });
      successes[at] = (successes[at] ?? 0) + 1;
      const mine: Told = { requestId, nonce: body.nonce, holdId: body.hold_id };
      told.push(mine);
      const fate = random();
      if (fate < 0.5) {
        await persist(`${path}/${mine.nonce}/used`, {
          hold_id: mine.holdId,
          tx_hash: `0x${mine.nonce}`,
        });
        mine.marked = "used";
      } else if (fate < 0.7) {
        mine.marked = "recyclable"; // before the answer: somebody may have it before we hear
        await persist(`${path}/${mine.nonce}/recyclable`, {
          hold_id: mine.holdId,
          reason: "prove",
        });
      }
    }
  }

  await Promise.all(Array.from({ length: CALLERS }, caller));
  const seconds = (performance.now() - startedMs) / 1_000;
  await stopFleet(fleet);
  const rows = await checkSigner(uri, signer, told);
  if (told.length !== allocations) throw new Error(`${told.length} of ${allocations} answered`);
  const share = Math.min(...successes) / (allocations / fleet.length);
  if (title === "basic" && share < 0.5) throw new Error(`a server got ${share} of its fair share`);
  print(
    `${title}: ${allocations} allocations by ${CALLERS} callers in ${seconds.toFixed(1)} s, all answered; ${rows} numbers, dense, no duplicate; ` +
      `${told.filter(({ marked }) => marked === "recyclable").length} recycled; ${retried} retries; smallest share ${share.toFixed(2)} of fair`,
  );
}
