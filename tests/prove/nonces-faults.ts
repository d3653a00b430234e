import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { promisify } from "node:util";
import {
  call,
  checkSigner,
  type FleetMember,
  seeded,
  startFleet,
  stopFleet,
  type Told,
  withClient,
} from "@tenure/testing/fleet/nonce-fleet";
import { createDaemon } from "@tenure/testing/processes/daemon";
import { type FaultProxy, startProxy } from "@tenure/testing/processes/proxy";
import { unprivilegedUser } from "@tenure/testing/processes/run-as";
import { type PostgresServer, startPostgres } from "@tenure/testing/stores/postgres";
import { until } from "@tenure/testing/until";

export const name = "nonces-faults";
export const summary =
  "lost replies, killed backends and crashes of Postgres under load: nothing answered is missing, nothing is issued twice";

interface Options {
  size: "ci" | "full";
  seed: number;
  print: (line: string) => void;
}

export async function run(options: Options): Promise<void> {
  for (const mode of ["basic", "worker_queue"]) {
    const postgres = await startPostgres();
    try {
      await disturbFleet(options, mode, postgres);
      if (mode === "basic") await lostTail(options, postgres);
    } finally {
      await postgres.discard();
    }
  }
}

/** Two servers that reach Postgres through a network we can break. */
interface Scene {
  mode: string;
  postgres: PostgresServer;
  proxy: FaultProxy;
  fleet: FleetMember[];
  random: () => number;
}

async function disturbFleet(
  { size, seed, print }: Options,
  mode: string,
  postgres: PostgresServer,
) {
  const proxy = await startProxy({ targetPort: postgres.port });
  const proxied = new URL(postgres.uri());
  proxied.port = String(proxy.port);
  const env = { TENURE_NONCE_MODE: mode, TENURE_NONCE_HOLD_TTL_MS: "3600000" };
  const fleet = await startFleet(proxied.href, [{ env }, { env }]);
  const scene = { mode, postgres, proxy, fleet, random: seeded(seed) };
  const many = size === "full";
  print(await underLoad(scene, () => loseReplies(scene, many ? 200 : 10)));
  print(await underLoad(scene, () => killBackends(scene, many ? 200 : 15)));
  print(await underLoad(scene, () => crash(scene, many ? 10 : 1)));
  await stopFleet(fleet);
  proxy.stop();
}

async function loseReplies({ proxy }: Scene, cuts: number): Promise<string> {
  for (let cut = 0; cut < cuts; cut++) {
    const done = proxy.cutAfter((bytes) => bytes.includes("request_id"));
    await Promise.race([done, wait(5_000)]);
  }
  return `${cuts} replies to commits lost`;
}

async function killBackends({ postgres }: Scene, rounds: number): Promise<string> {
  let killed = 0;
  await withClient(postgres.uri(), async (client) => {
    for (let round = 0; round < rounds; round++) {
      const { rows } = await client.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where application_name = 'tenure' and query like '%nonce_commit%'`,
      );
      killed += rows.length;
      await wait(30);
    }
  });
  return `${killed} backends terminated`;
}

async function crash({ postgres }: Scene, restarts: number): Promise<string> {
  for (let restart = 0; restart < restarts; restart++) {
    await wait(300);
    await postgres.kill("immediate");
    await postgres.start();
  }
  return `${restarts} immediate restarts of Postgres`;
}

/** Callers ask while `disturb` does its worst; then every request is asked once more, in peace. */
async function underLoad(scene: Scene, disturb: () => Promise<string>): Promise<string> {
  const { mode, postgres, proxy, fleet, random } = scene;
  const signer = `faults-${randomUUID()}`;
  const asked: string[] = [];
  const told = new Map<string, Told>();
  let stopped = false;

  async function ask(requestId: string): Promise<Told | undefined> {
    const { url } = fleet[Math.floor(random() * fleet.length)]!;
    const answer = await call(url, `/signers/${signer}/nonces`, {
      body: { request_id: requestId },
    });
    if (answer.status !== 200) return undefined;
    return { requestId, nonce: answer.body.nonce, holdId: answer.body.hold_id };
  }
  async function caller(): Promise<void> {
    while (!stopped) {
      const requestId = randomUUID();
      asked.push(requestId);
      const answer = await ask(requestId).catch(() => undefined);
      if (answer) told.set(requestId, answer);
      else await wait(20);
    }
  }
  /** Whatever was unknown is found out by asking again; whatever was answered is answered the same. */
  async function settle(requestId: string): Promise<Told> {
    const options = { what: `the answer to ${requestId}`, deadlineMs: 40_000 };
    const again = await until(() => ask(requestId), options);
    const before = told.get(requestId) ?? again;
    if (before.nonce !== again.nonce || before.holdId !== again.holdId)
      throw new Error(`${requestId} was answered ${before.nonce}, then ${again.nonce}`);
    return again;
  }

  const callers = Array.from({ length: 16 }, caller);
  const what = await disturb();
  stopped = true;
  await Promise.all(callers);
  await proxy.heal();
  const settled: Told[] = [];
  for (let from = 0; from < asked.length; from += 50)
    settled.push(...(await Promise.all(asked.slice(from, from + 50).map(settle))));
  const rows = await checkSigner(postgres.uri(), signer, settled);
  if (rows !== asked.length) throw new Error(`${rows} numbers for ${asked.length} requests`);
  return `${mode}: ${what}: ${told.size} answered, ${asked.length - told.size} unknown or refused, all settled by request id; ${rows} numbers, dense, each once`;
}

/** A standby that lacks the last numbers is promoted and answers at the same address. */
async function lostTail({ print }: Options, postgres: PostgresServer): Promise<void> {
  const [member] = await startFleet(postgres.uri(), [{}]);
  const signer = `tail-${randomUUID()}`;
  const ask = () =>
    call(member!.url, `/signers/${signer}/nonces`, { body: { request_id: randomUUID() } });
  await ask();
  const data = await withClient(postgres.uri(), async (client) => {
    return (await client.query("show data_directory")).rows[0].data_directory as string;
  });
  const copy = `${data}-standby`;
  await postgres.stop();
  await promisify(execFile)("cp", ["-a", data, copy]);
  await postgres.start();
  const tail = await until(
    async () => {
      const { status, body } = await ask();
      return status === 200 && body;
    },
    { what: "numbers the standby lacks" },
  );
  await postgres.kill("immediate");

  const standby = await promote(postgres, copy);
  try {
    const refused = await until(
      async () => {
        const { body } = await ask();
        if (body.nonce !== undefined)
          throw new Error(`nonce ${body.nonce} was issued on the new timeline`);
        return body.error.details?.reason === "timeline" && body.error;
      },
      { what: "the refusal of the new timeline", deadlineMs: 20_000 },
    );
    const cluster = await call(member!.url, "/cluster");
    if (cluster.body.timeline_confirmed !== false)
      throw new Error("the cluster view does not say so");
    await call(member!.url, "/cluster/confirm-timeline", { body: {} });
    const { body } = await until(
      async () => {
        const answer = await ask();
        return answer.status === 200 && answer;
      },
      { what: "allocation after the confirmation" },
    );
    print(
      `a standby without nonce ${tail.nonce} was promoted: ${refused.code} (${refused.details.reason}) until confirmed, then nonce ${body.nonce} again`,
    );
  } finally {
    await member!.stop();
    await standby.end("SIGQUIT");
    rmSync(copy, { recursive: true, force: true });
    await postgres.start();
  }
}

async function promote(postgres: PostgresServer, data: string) {
  writeFileSync(join(data, "standby.signal"), "");
  const user = unprivilegedUser();
  const inRecovery = async (wanted: boolean) =>
    withClient(postgres.uri(), async (client) => {
      const { rows } = await client.query("select pg_is_in_recovery() as it");
      return rows[0].it === wanted;
    });
  const daemon = createDaemon({
    name: "the standby",
    command: join(postgres.programs.directory, "postgres"),
    args: ["-D", data],
    env: { PATH: process.env.PATH ?? "", LC_ALL: "C", ...postgres.programs.env },
    cwd: data,
    runAs: user && { uid: user.uid, gid: user.gid },
    logFile: join(data, "standby.log"),
    endSignal: "SIGQUIT",
    isReady: () => inRecovery(true).catch(() => false),
  });
  await daemon.start();
  await withClient(postgres.uri(), (client) => client.query("select pg_promote(true, 20)"));
  await until(() => inRecovery(false), { what: "the promotion" });
  return daemon;
}
