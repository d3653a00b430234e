import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { withClient } from "@tenure/testing/fleet/nonce-fleet";
import type { RecordedEvent } from "@tenure/testing/history";
import { until } from "@tenure/testing/until";
import { Client } from "pg";
import {
  checkFence,
  type FencedAnswer,
  type FencedAsk,
  type FencedRow,
} from "../checkers/fence.ts";
import { operationsOf } from "../checkers/operations.ts";
import type { Scene, Workload } from "../workload.ts";
import { type Caller, runCallers } from "./callers.ts";

const SIGNERS = ["lease-0", "lease-1"];
const LEASE_MS = 700;
const STATEMENT_MS = 4_000;

/** I10: rival owners of a few signers, each with its own way to Postgres; some are stopped past their lease. */
export const fence: Workload = {
  name: "fence",
  promises: "I10",
  clients: 3,
  uses: ["postgres"],
  survivesHotLoss: true,
  survivesStoreClock: true,
  async load(context) {
    const { scene, history } = context;
    const owner = `${scene.name}/${randomUUID()}`;
    await runCallers(context, SIGNERS.length, async (caller) => {
      const signer = SIGNERS[Number(caller.name.at(-1)) % SIGNERS.length]!;
      const line = createLine(scene.postgresUri);
      const mine = `${owner}.${caller.name.at(-1)}`;
      const write = (token: number | null, keepMs = LEASE_MS) => {
        const ask: FencedAsk = { signer, owner: mine, token };
        const value = { process: caller.name, f: "write", value: ask };
        return history.run(value, () => commit(line, ask, keepMs));
      };
      try {
        await beOwner(caller, write);
      } catch {
        await caller.pause(20, 200); // unknown; begin again, as anybody would
      } finally {
        line.close();
      }
    });
  },
  async settle({ scene, history, deadlineMs }) {
    for (const signer of SIGNERS) {
      const line = createLine(scene.postgresUri);
      const ask: FencedAsk = { signer, owner: `settle/${randomUUID()}`, token: null };
      await until(
        async () => {
          const value = { process: `settle/${signer}`, f: "write", value: ask };
          const answer = await history.run(value, () => commit(line, ask, 0));
          return answer.outcome === "done";
        },
        { deadlineMs, everyMs: 100, what: `the lease of ${signer}` },
      );
      line.close();
    }
  },
  hazards: {
    takeovers: ["fence.freeze:4000"],
    stale_writes_refused: ["fence.freeze:4000"],
    unknown_outcomes: ["fence.postgres-partition:6000", "fence.kill", "postgres.crash"],
  },
  async read({ postgresUri }: Scene): Promise<FencedRow[]> {
    return withClient(postgresUri, async (client) => {
      const text = `select signer, nonce::int, fencing_token::int as token
                      from signer_nonce_allocation where signer = any($1)`;
      return (await client.query(text, [SIGNERS])).rows;
    });
  },
  check: (events: RecordedEvent[], rows: FencedRow[]) =>
    checkFence(operationsOf<FencedAsk, FencedAnswer>(events, "write"), rows),
};

/** Takes the lease when it can, writes for a while, sometimes sleeps past it, and writes on as if nothing had been. */
async function beOwner(
  caller: Caller,
  write: (token: number | null, keepMs?: number) => Promise<FencedAnswer>,
): Promise<void> {
  const taken = await write(null);
  if (taken.outcome !== "done") return caller.pause(10, 150);
  const { token } = taken;
  for (let left = Math.floor(caller.random.between(2, 15)); left > 0; left--) {
    await (caller.chance(0.1) ? wait(LEASE_MS * 1.5) : caller.pause(1, 30));
    const answer = await write(token!);
    if (answer.outcome === "fenced") return;
  }
  // Half give it back; the others fall silent, and somebody has to take it over.
  if (caller.chance(0.5)) await write(token!, 0);
  else await caller.pause(LEASE_MS, LEASE_MS * 2);
}

interface Line {
  connection(): Promise<Client>;
  close(): void;
}

function createLine(uri: string): Line {
  let connecting: Promise<Client> | undefined;
  let open: Client | undefined;
  return {
    connection() {
      connecting ??= (async () => {
        open = new Client({
          connectionString: uri,
          connectionTimeoutMillis: STATEMENT_MS,
          query_timeout: STATEMENT_MS,
        });
        open.on("error", () => {});
        await open.connect();
        return open;
      })();
      connecting.catch(() => {
        connecting = undefined;
      });
      return connecting;
    },
    // A partition swallows a polite end too; nobody waits for it.
    close: () => void open?.end().catch(() => {}),
  };
}

/** The statement the instances write with. It allocates one number, which is its place in the order of commits. */
async function commit(line: Line, ask: FencedAsk, keepMs: number): Promise<FencedAnswer> {
  const client = await line.connection();
  const asks = JSON.stringify([{ request_id: randomUUID(), n: 0, hold_id: randomUUID() }]);
  const { rows } = await client.query(
    "select nonce_commit($1, $2, $3, $4, 1000, 3600000, 'quarantine', 1000, null, null, $5) as answer",
    [ask.signer, ask.owner, ask.token, keepMs, asks],
  );
  const { outcome, fencing_token, nonces, acquired } = rows[0].answer;
  return { outcome, token: fencing_token, nonce: nonces?.[0], acquired };
}
