import { createTestCa } from "@tenure/testing/certificates";
import { type ProbedServer, startProbedServer } from "@tenure/testing/counting/probed-server";
import { storeSettings } from "@tenure/testing/fleet/running-server";
import { createDatabase } from "@tenure/testing/stores/database";
import { startNats } from "@tenure/testing/stores/nats";
import { createJetstreamQueue } from "./jetstream.ts";
import {
  type Pair,
  type Stage,
  submitterOf,
  submitterOn,
  workerOf,
  workerOn,
} from "./processes.ts";
import type { System } from "./role.ts";

/** One system with all its processes, as it is measured. */
export interface Fleet {
  servers: ProbedServer[];
  pairs: Pair[];
  /** The peer's own server, whose processor time is that of a server. */
  peers: { pid: number }[];
}

export type Mode =
  | "memory"
  | "roomy"
  | "tls"
  | "redis"
  | "two"
  | "across"
  | "bullmq"
  | "jetstreamMemory"
  | "jetstreamFile";

export interface Stores {
  /** Of a server that every fleet gets a database of. */
  postgresUri: string;
  /** Its own one for every fleet: instances that share a Redis share the work. */
  redisPort: number;
  /** Of a NATS server that is running; without it a fleet starts its own. */
  natsPort?: number;
}

/** Of a server as docs/operate.md advises where jobs are many. */
const ROOMY = "--max-semi-space-size=64";

export const MODES: Record<Mode, string> = {
  memory: "memory",
  roomy: `memory, ${ROOMY}`,
  tls: "memory, TLS",
  redis: "Redis",
  two: "two",
  across: "across",
  bullmq: "BullMQ",
  jetstreamMemory: "JetStream, memory",
  jetstreamFile: "JetStream, file",
};

export const usesRedis = (mode: Mode): boolean =>
  ["redis", "two", "across", "bullmq"].includes(mode);

export const isPeer = (mode: Mode): boolean => /^(bullmq|jetstream)/.test(mode);

export async function startFleet(stage: Stage, mode: Mode, stores: Stores): Promise<Fleet> {
  if (mode === "bullmq") {
    const pair = await startPeerPair(stage, { system: "bullmq", port: stores.redisPort });
    return { servers: [], pairs: [pair], peers: [] };
  }
  if (mode === "jetstreamFile" || mode === "jetstreamMemory")
    return startJetstream(stage, mode, stores);
  const { uri: postgresUri } = await createDatabase(stores.postgresUri);
  const redisUrl = `redis://127.0.0.1:${stores.redisPort}`;
  const ca = mode === "tls" ? createTestCa() : undefined;
  const env = {
    ...(ca && tlsSettings(ca.files("server"))),
    ...storeSettings({ postgresUri, ...(usesRedis(mode) && { redisUrl }) }),
    ...(mode === "roomy" && { NODE_OPTIONS: ROOMY }),
  };
  const start = () => stage.keep(startProbedServer({ env }));
  const a = await start();
  if (mode !== "two" && mode !== "across") {
    const trust = ca && { caFile: ca.caFile };
    const pair = await stage.startPair(submitterOn(a, trust), workerOn(a, trust));
    return { servers: [a], pairs: [pair], peers: [] };
  }
  const b = await start();
  const pairs =
    mode === "across"
      ? [await stage.startPair(submitterOn(a), workerOn(b))]
      : [
          await stage.startPair(submitterOn(a), workerOn(a)),
          await stage.startPair(submitterOn(b), workerOn(b)),
        ];
  return { servers: [a, b], pairs, peers: [] };
}

const tlsSettings = ({ certFile, keyFile }: { certFile: string; keyFile: string }) => ({
  TENURE_SERVER_TLS_CERT_FILE: certFile,
  TENURE_SERVER_TLS_KEY_FILE: keyFile,
});

async function startJetstream(
  stage: Stage,
  mode: "jetstreamFile" | "jetstreamMemory",
  { natsPort }: Stores,
): Promise<Fleet> {
  const storage = mode === "jetstreamFile" ? "file" : "memory";
  const nats = natsPort === undefined ? await stage.keep(startNats()) : undefined;
  const port = natsPort ?? nats!.port;
  await createJetstreamQueue({ port, storage });
  const pair = await startPeerPair(stage, { system: "jetstream", port, storage });
  return { servers: [], pairs: [pair], peers: nats ? [nats] : [] };
}

const startPeerPair = (stage: Stage, system: System): Promise<Pair> =>
  stage.startPair(submitterOf(system), workerOf(system));
