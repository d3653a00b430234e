import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { call, type FleetMember, startFleet, withClient } from "@tenure/testing/fleet/nonce-fleet";
import { isFrozen } from "@tenure/testing/processes/proc";
import { type FaultProxy, startProxy } from "@tenure/testing/processes/proxy";
import { scratchDirectory } from "@tenure/testing/scratch";
import { type PostgresServer, startPostgres } from "@tenure/testing/stores/postgres";
import { until } from "@tenure/testing/until";

export const name = "nonces-sigstop";
export const summary =
  "the owner of a signer is stopped past its lease at every point of a write: nothing it sends later is accepted";

const TTL_MS = 3_000;
const WAITING = 5;

/** How the owner is brought to a stop in the middle of a write that is already asked for. */
type StopAt = (scene: Scene, ask: () => void) => Promise<void>;

interface Scene extends Pair {
  postgres: PostgresServer;
  signer: string;
}

const POINTS: Record<string, StopAt> = {
  "before the statement is sent": (scene, ask) => stopAtFailpoint(scene, "nonce.before-send", ask),
  "while it waits for the lease row's lock": async ({ postgres, owner, signer }, ask) =>
    withClient(postgres.uri(), async (client) => {
      await client.query("begin");
      await client.query("select from signer_lease where signer = $1 for update", [signer]);
      ask();
      await until(() => isWaiting(postgres), { what: "the write to wait for the lock" });
      await owner.freeze();
      // Time passes for the lease. The write goes on when the lock is let go, its process still stopped.
      const past = "update signer_lease set expires_at = tenure_now() where signer = $1";
      await client.query(past, [signer]);
      await client.query("commit");
    }),
  "after it is sent and before the reply": async ({ owner, proxy, postgres, signer }, ask) => {
    const before = await nextNonce(postgres, signer);
    proxy.delay(60_000, "down");
    ask();
    await until(async () => (await nextNonce(postgres, signer)) > before, { what: "the commit" });
    await owner.freeze();
    await proxy.heal();
  },
  "after the reply and before the HTTP answer": (scene, ask) =>
    stopAtFailpoint(scene, "nonce.before-answer", ask),
};

export async function run({
  size,
  print,
}: {
  size: "ci" | "full";
  seed: number;
  print: (line: string) => void;
}): Promise<void> {
  const postgres = await startPostgres();
  const pair = await startPair(postgres);
  try {
    const rounds = size === "full" ? 5 : 1;
    for (const [index, [point, stopAt]] of Object.entries(POINTS).entries()) {
      // In the small size each point has one of the two successors, in turn.
      const successors = size === "full" ? [true, false] : [index % 2 === 0];
      for (const successorWrites of successors) {
        const total = { attempted: 0, accepted: 0, fenced: 0, takeoverMs: 0 };
        for (let round = 0; round < rounds; round++) {
          const seen = await stopOwner({ ...pair, postgres }, stopAt, successorWrites);
          total.attempted += seen.attempted;
          total.accepted += seen.accepted;
          total.fenced += seen.fenced;
          total.takeoverMs = Math.max(total.takeoverMs, seen.takeoverMs);
        }
        print(`${lineOf(point, successorWrites)}: ${countsOf(total)}`);
        if (total.accepted > 0) throw new Error("a write of the old owner was accepted");
        if (total.attempted === 0) throw new Error("the old owner attempted nothing");
        // A promise about time is held where the machine is ours alone.
        if (size === "full" && total.takeoverMs > TTL_MS + 1_000)
          throw new Error("the takeover took too long");
      }
    }
    print("before COMMIT: there is no such point, every write is one statement");
  } finally {
    await Promise.all([pair.owner.kill9(), pair.other.kill9()]);
    pair.proxy.stop();
    await postgres.discard();
  }
}

const lineOf = (point: string, successorWrites: boolean): string =>
  `stopped ${point}${successorWrites ? "" : ", the new owner has not written yet"}`;

function countsOf(total: {
  attempted: number;
  accepted: number;
  fenced: number;
  takeoverMs: number;
}) {
  const { attempted, accepted, fenced } = total;
  const took = (total.takeoverMs / 1_000).toFixed(1);
  return `attempted ${attempted}, accepted ${accepted}; FENCED ${fenced}, refused otherwise ${attempted - fenced}; taken over ${took} s after the stop (lease ${TTL_MS / 1_000} s)`;
}

interface Pair {
  owner: FleetMember;
  other: FleetMember;
  proxy: FaultProxy;
  failpoints: string;
}

/** The one that will be stopped, with a network of its own to the database, and one that goes on. */
async function startPair(postgres: PostgresServer): Promise<Pair> {
  const proxy = await startProxy({ targetPort: postgres.port });
  const failpoints = join(scratchDirectory("failpoints"), "control");
  const env = {
    TENURE_NONCE_MODE: "worker_queue",
    TENURE_NONCE_LEASE_TTL_MS: String(TTL_MS),
    TENURE_NONCE_HOLD_TTL_MS: "600000",
  };
  const proxied = new URL(postgres.uri());
  proxied.port = String(proxy.port);
  const [owner, other] = await startFleet(postgres.uri(), [
    {
      env: { ...env, TENURE_FAILPOINTS_FILE: failpoints },
      conditions: ["tenure-test"],
      postgresUri: proxied.href,
    },
    { env },
  ]);
  return { owner: owner!, other: other!, proxy, failpoints };
}

async function stopOwner(
  pair: Pair & { postgres: PostgresServer },
  stopAt: StopAt,
  successorWrites: boolean,
) {
  const { postgres, owner, other, failpoints } = pair;
  const signer = await signerOf(owner);
  // The mark of a forwarded request: whoever gets it does the work.
  const ask = (requestId: string) =>
    call(owner.url, `/signers/${signer}/nonces`, {
      body: { request_id: requestId },
      headers: { "x-tenure-forwarded": "prove" },
      timeoutMs: 60_000,
    }).then(
      ({ status, body }) => (status === 200 ? "ok" : (body.error.code as string)),
      () => "unknown",
    );
  await ask("first");
  const lease = await readLease(postgres, signer);
  const answers: Promise<string>[] = [];
  await stopAt({ ...pair, signer }, () => answers.push(ask("in-flight")));
  const stoppedMs = performance.now();
  // Behind it in the queue of the stopped process, or in its socket: tried when it goes on.
  for (let index = 0; index < WAITING; index++) answers.push(ask(`waiting-${index}`));
  await takeOver({ postgres, signer, url: other.url, writes: successorWrites });
  const takeoverMs = performance.now() - stoppedMs;
  const before = await imageOf(postgres, signer, lease.token);
  writeFileSync(failpoints, "");
  await owner.thaw();
  const outcomes = await Promise.all(answers);
  // The old owner's own writes, once more and by its own name, straight at the database.
  const replayed = await replay(postgres, signer, lease);
  const after = await imageOf(postgres, signer, lease.token);
  // Answered "ok": what it had committed before the takeover, or what it did later under a term of its own.
  const refused = [...outcomes.filter((outcome) => outcome !== "ok"), ...replayed];
  const accepted = (after === before ? 0 : 1) + replayed.filter((each) => each !== "fenced").length;
  const fenced = refused.filter((each) => /fenced/i.test(each)).length;
  return { attempted: refused.length, accepted, fenced, takeoverMs };
}

/** One whose lease this server keeps: not every signer is its own. */
async function signerOf(owner: FleetMember): Promise<string> {
  return until(
    async () => {
      const signer = `stop-${randomUUID()}`;
      const headers = { "x-tenure-forwarded": "prove" };
      const path = `/signers/${signer}`;
      await call(owner.url, `${path}/nonces`, { body: { request_id: "probe" }, headers });
      const { body } = await call(owner.url, path);
      return body.owner_node ? signer : undefined;
    },
    { what: "a signer of the owner" },
  );
}

async function stopAtFailpoint({ owner, failpoints }: Scene, point: string, ask: () => void) {
  writeFileSync(failpoints, `${point}=pause#1`);
  ask();
  await until(() => isFrozen(owner.pid), { what: `the stop at ${point}` });
}

/** By the other server with a write, or by a lease alone. */
async function takeOver(options: {
  postgres: PostgresServer;
  signer: string;
  url: string;
  writes: boolean;
}): Promise<void> {
  const { postgres, signer, url, writes } = options;
  const attempt = writes
    ? async () => {
        const body = { request_id: randomUUID() };
        const headers = { "x-tenure-forwarded": "prove" };
        const path = `/signers/${signer}/nonces?wait_ms=100`;
        return (await call(url, path, { body, headers })).status === 200;
      }
    : async () =>
        (await commitAs(postgres, { signer, owner: "successor/1", token: null })) === "done";
  await until(attempt, { what: "the takeover", deadlineMs: 60_000, everyMs: 50 });
}

async function replay(
  postgres: PostgresServer,
  signer: string,
  lease: { owner: string; token: number },
): Promise<string[]> {
  const asks = JSON.stringify([{ request_id: randomUUID(), n: 0, hold_id: randomUUID() }]);
  const marks = JSON.stringify([{ event: "resolve_released", nonce: 0 }]);
  const writes = [{ asks }, { marks }, { next: 1_000 }, {}];
  const outcomes: string[] = [];
  for (const write of writes)
    outcomes.push(await commitAs(postgres, { signer, ...lease, ...write }));
  return outcomes;
}

async function commitAs(
  postgres: PostgresServer,
  write: {
    signer: string;
    owner: string;
    token: number | null;
    asks?: string;
    marks?: string;
    next?: number;
  },
): Promise<string> {
  const { signer, owner, token, asks = null, marks = null, next = null } = write;
  return withClient(postgres.uri(), async (client) => {
    const { rows } = await client.query(
      `select nonce_commit($1, $2, $3, 60000, null, 600000, 'quarantine', 1000, $4, $5, $6) ->> 'outcome' as outcome`,
      [signer, owner, token, next, marks, asks],
    );
    return rows[0].outcome;
  });
}

async function readLease(postgres: PostgresServer, signer: string) {
  return withClient(postgres.uri(), async (client) => {
    const { rows } = await client.query("select * from signer_lease where signer = $1", [signer]);
    return { owner: rows[0].owner_node as string, token: Number(rows[0].fencing_token) };
  });
}

async function nextNonce(postgres: PostgresServer, signer: string): Promise<number> {
  return withClient(postgres.uri(), async (client) => {
    const text = "select next_local_nonce from signer_nonce_state where signer = $1";
    return Number((await client.query(text, [signer])).rows[0]?.next_local_nonce ?? 0);
  });
}

/** Every row that was written under this term or an earlier one. */
async function imageOf(postgres: PostgresServer, signer: string, token: number): Promise<string> {
  return withClient(postgres.uri(), async (client) => {
    const image: unknown[] = [];
    for (const [table, key] of [
      ["signer_nonce_allocation", "nonce"],
      ["signer_nonce_request", "request_id, n"],
    ]) {
      const text = `select * from ${table} where signer = $1 and fencing_token <= $2 order by ${key}`;
      image.push((await client.query(text, [signer, token])).rows);
    }
    return JSON.stringify(image);
  });
}

async function isWaiting(postgres: PostgresServer): Promise<boolean> {
  return withClient(postgres.uri(), async (client) => {
    const { rowCount } = await client.query(
      "select from pg_stat_activity where wait_event_type = 'Lock' and query like '%nonce_commit%'",
    );
    return (rowCount ?? 0) > 0;
  });
}
