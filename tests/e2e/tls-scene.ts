import { connect, type SecureVersion, type TLSSocket } from "node:tls";
import { type AdminOptions, createAdmin, Worker } from "@tenure/sdk";
import { createTestCa, type PairFiles } from "@tenure/testing/certificates";
import { FLEET_TOKEN, FLEET_TOKEN_ENV } from "@tenure/testing/fleet/fleet-token";
import {
  type RunningServer,
  startServer,
  storeSettings,
} from "@tenure/testing/fleet/running-server";
import { createDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import { PLAIN_SERVER } from "@tenure/testing/tls-run";
import { until } from "@tenure/testing/until";
import { onTestFinished } from "vitest";
import { PATIENT } from "../prove/jobs-scene.ts";

export const tlsEnv = ({ certFile, keyFile }: Pick<PairFiles, "certFile" | "keyFile">) => ({
  TENURE_SERVER_TLS_CERT_FILE: certFile,
  TENURE_SERVER_TLS_KEY_FILE: keyFile,
});

/** A server with tokens on a database of its own, unless the environment names one. It stops with the test. */
export async function startTlsServer(
  env: Record<string, string>,
  args: string[] = [],
): Promise<RunningServer> {
  const postgres = env.TENURE_SERVER_POSTGRES_URI ?? (await ownDatabase());
  const server = await startServer({
    args,
    env: {
      ...storeSettings({ postgresUri: postgres }),
      ...{ ...FLEET_TOKEN_ENV, ...PATIENT },
      // Also in a run whose servers get a certificate: each test decides.
      ...{ ...PLAIN_SERVER, ...env },
    },
  });
  onTestFinished(async () => void (await server.stop()));
  return server;
}

export async function ownDatabase(): Promise<string> {
  const database = await createDatabase(stores().postgresAdminUri);
  onTestFinished(() => database.drop());
  return database.uri;
}

export const admin = (url: string, tls: AdminOptions["tls"], token = FLEET_TOKEN) =>
  createAdmin({ url, token, tls });

/** A worker that answers with its payload; `until` it is registered unless it is not expected to be. */
export function hire(options: Partial<ConstructorParameters<typeof Worker>[0]> & { url: string }) {
  const losses: string[] = [];
  const worker = new Worker({
    token: FLEET_TOKEN,
    pools: ["echo"],
    capacity: 8,
    run: async ({ payload }) => payload,
    ...options,
    on: { down: ({ kind, reason }) => void losses.push(`${kind}: ${reason}`) },
  });
  onTestFinished(() => worker.close({ withinMs: 0 }));
  const registered = () =>
    until(() => worker.nodeId, { deadlineMs: 60_000, what: `a node; lost by ${losses}` });
  const refused = () =>
    until(() => losses[0], { deadlineMs: 60_000, what: "the server to refuse the node" });
  return { worker, losses, registered, refused };
}

export interface HandshakeOptions {
  caFile?: string;
  cert?: string;
  key?: string;
  maxVersion?: SecureVersion;
  session?: Buffer | undefined;
}

/** One TLS connection. Rejects when the handshake fails. */
export function handshake(url: string, options: HandshakeOptions): Promise<TLSSocket> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = connect({
      host: hostname,
      port: Number(port),
      rejectUnauthorized: false,
      ...options,
    });
    socket.once("secureConnect", () => resolve(socket));
    socket.once("error", reject);
  });
}

/** The serial number of the certificate that a new connection gets. */
export async function servedSerial(url: string): Promise<string> {
  const socket = await handshake(url, {});
  const { serialNumber } = socket.getPeerCertificate();
  socket.destroy();
  return serialNumber;
}

export const untilServed = (url: string, serial: string) =>
  until(async () => (await servedSerial(url)) === serial, {
    deadlineMs: 15_000,
    everyMs: 100,
    what: "the new certificate in a handshake",
  });

export const ca = createTestCa();
