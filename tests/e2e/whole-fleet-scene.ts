import { randomBytes } from "node:crypto";
import { chmodSync, copyFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Admin, type AdminOptions, createAdmin } from "@tenure/sdk";
import { CLIENT, type PairFiles } from "@tenure/testing/certificates";
import { FLEET_TOKEN } from "@tenure/testing/fleet/fleet-token";
import { type RunningUnit, startUnit } from "@tenure/testing/fleet/node-unit";
import { type RunningServer, storeSettings } from "@tenure/testing/fleet/running-server";
import { startTenure } from "@tenure/testing/processes/process";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { uniqueKeyPrefix } from "@tenure/testing/stores/redis";
import { stores } from "@tenure/testing/stores/stores";
import { expect, onTestFinished } from "vitest";
import { ca, ownDatabase, startTlsServer, tlsEnv } from "./tls-scene.ts";

export const isRoot = process.getuid?.() === 0;
/** With root each deployment has a user of its own, of so many from here on per node-unit. */
const FIRST_UID = 72_000;
const UIDS = 100;
export const isUidOf = (unit: number, uid: number): boolean =>
  isRoot ? Math.floor((uid - FIRST_UID) / UIDS) === unit : uid === process.getuid?.();

/** Three instances with TLS, three node-units that joined with join tokens, and the commands of an operator. */
export interface WholeFleet {
  servers: RunningServer[];
  units: RunningUnit[];
  /** The pair that all servers serve; issuing another one under its name replaces it. */
  rollServerPair(): PairFiles;
  /** Trusts the CA; `node` also has a client certificate. */
  trust: { client: AdminOptions["tls"]; node: AdminOptions["tls"] };
  /** Stops an instance in good order and starts it again on its port. */
  restart(nth: number): Promise<void>;
  /** The first admin. */
  admin: Admin;
  /** Runs a command as the first admin, and returns what it printed as JSON. */
  tenure<T>(...args: string[]): Promise<T>;
  /** The secret of a new token. */
  createToken(...args: string[]): Promise<string>;
  setSecret(name: string, value: string): Promise<void>;
  /** A program that every user of the machine may read. */
  publicFile(name: string): string;
}

export async function startWholeFleet(unitNames: readonly string[]): Promise<WholeFleet> {
  const open = scratchDirectory("open");
  chmodSync(open, 0o755);
  const keyFile = join(scratchDirectory("keys"), "secret.keys");
  writeFileSync(keyFile, `${randomBytes(32).toString("base64")}\n`, { mode: 0o600 });
  const pair = ca.files("whole-fleet");
  const client = ca.files("whole-fleet-node", CLIENT);
  const env = {
    ...storeSettings({ postgresUri: await ownDatabase(), redisUrl: stores().redisUrl }),
    TENURE_SCHEDULER_PHASE2_REDIS_KEY_PREFIX: uniqueKeyPrefix(),
    TENURE_SERVER_TLS_CLIENT_CA_FILE: ca.caFile,
    TENURE_SERVER_TLS_CA_FILE: ca.caFile,
    TENURE_SERVER_SECRET_KEY_FILE: keyFile,
    ...tlsEnv(pair),
  };
  const servers: RunningServer[] = [];
  for (let each = 0; each < 3; each++) servers.push(await startTlsServer(env));
  const urls = servers.map(({ url }) => url);

  async function tenure<T>(...args: string[]): Promise<T> {
    const run = startTenure([...args, "--json"], {
      env: {
        TENURE_URL: urls.join(","),
        TENURE_TOKEN: FLEET_TOKEN,
        TENURE_CA_FILE: ca.caFile,
      },
    });
    const { code } = await run.exited;
    expect(code, `${args.join(" ")}: ${run.stderr()}`).toBe(0);
    return JSON.parse(run.stdout()) as T;
  }
  const createToken = async (...args: string[]) =>
    (await tenure<{ secret: string }>("token", "create", ...args)).secret;

  // Children of another user read the CA.
  const caFile = join(open, "ca.pem");
  copyFileSync(ca.caFile, caFile);
  chmodSync(caFile, 0o644);
  const units: RunningUnit[] = [];
  for (const [nth, name] of unitNames.entries()) {
    const join_token = await createToken("--join", "--name", name, "--labels", "zone=a");
    const firstUid = FIRST_UID + nth * UIDS;
    const directory = scratchDirectory("whole-unit");
    chmodSync(directory, 0o755);
    const unit = await startUnit({
      name,
      urls: [...urls.slice(nth), ...urls.slice(0, nth)],
      dataDir: join(directory, "data"),
      env: {
        TENURE_JOIN_TOKEN: join_token,
        HOST_CA_FILE: caFile,
        HOST_CERT_FILE: client.certFile,
        HOST_KEY_FILE: client.keyFile,
        NODE_UNIT_SCHEDULER_INTERVAL_MS: "1000",
        ...(isRoot && { NODE_UNIT_RUN_AS: `per-deployment:${firstUid}-${firstUid + UIDS - 1}` }),
      },
    });
    onTestFinished(async () => void (await unit.kill9()));
    units.push(unit);
  }

  return {
    servers,
    units,
    admin: callAs(urls, FLEET_TOKEN),
    rollServerPair: () => ca.files("whole-fleet"),
    trust: {
      client: { caFile: ca.caFile },
      node: { caFile: ca.caFile, certFile: client.certFile, keyFile: client.keyFile },
    },
    async restart(nth) {
      const { url, stop } = servers[nth]!;
      await stop();
      servers[nth] = await startTlsServer(env, ["--port", new URL(url).port]);
    },
    tenure,
    createToken,
    async setSecret(name, value) {
      const file = join(scratchDirectory("value"), "value");
      writeFileSync(file, value, { mode: 0o600 });
      await tenure("secret", "set", name, "--from-file", file);
    },
    publicFile(name) {
      const copy = join(open, name.replace(/js$/, "mjs"));
      copyFileSync(join(repositoryRoot, "tests/e2e", name), copy);
      chmodSync(copy, 0o644);
      return copy;
    },
  };
}

export const callAs = (url: string | string[], token: string): Admin =>
  createAdmin({ url, token, tls: { caFile: ca.caFile }, timeoutMs: 10_000 });
