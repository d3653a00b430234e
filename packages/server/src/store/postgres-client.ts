import { Socket } from "node:net";
import pg from "pg";

/** A Postgres client whose socket can be closed without an answer of the server. */
export class PostgresClient extends pg.Client {
  readonly socket: Socket;

  constructor(config: pg.ClientConfig) {
    const socket = new Socket();
    super({
      ...config,
      keepAlive: true,
      // Below the idle limit of common middleboxes. Node sends ten probes, a second apart.
      keepAliveInitialDelayMillis: KEEPALIVE_MS,
      stream: () => socket,
    });
    this.socket = socket;
  }
}

const KEEPALIVE_MS = 10_000;
const PROBE_LIMIT_MS = 1_000;

/** Resolves when the server answers in time. A time limit of the client's own, so that silence is noticed too. */
export async function probe(client: pg.ClientBase): Promise<void> {
  const config: pg.QueryConfig & { query_timeout: number } = {
    text: "select 1",
    query_timeout: PROBE_LIMIT_MS,
  };
  await client.query(config);
}

/**
 * Finds connections that were cut off without a reset while they were idle.
 *
 * A statement on such a connection would fail only after its time limit, with an unknown outcome. So a connection that
 * was idle for a while is probed before it is used. After one that stayed silent, all others that were last used before
 * are not trusted either: they took the same way.
 */
export function createIdleProbe(probeAfterIdleMs: number) {
  const answeredAtMs = new WeakMap<pg.ClientBase, number>();
  let silentAtMs = Number.NEGATIVE_INFINITY;

  return {
    /** The server answered on this connection just now. */
    answered: (client: pg.ClientBase) => void answeredAtMs.set(client, performance.now()),
    /** The server did not answer a statement. */
    silent() {
      silentAtMs = performance.now();
    },
    async isAlive(client: pg.ClientBase): Promise<boolean> {
      const lastMs = answeredAtMs.get(client);
      if (lastMs === undefined) return true;
      if (lastMs <= silentAtMs) return false;
      if (performance.now() - lastMs < probeAfterIdleMs) return true;
      try {
        await probe(client);
        return true;
      } catch {
        silentAtMs = performance.now();
        return false;
      }
    },
  };
}

/** Closes what an orderly end left open: a connection that went silent never answers the goodbye. */
export async function closeSockets(sockets: Iterable<Socket>): Promise<void> {
  const open = [...sockets].filter((socket) => !socket.closed);
  const closed = Promise.all(
    open.map((socket) => new Promise<void>((resolve) => socket.once("close", () => resolve()))),
  );
  const limit = setTimeout(() => {
    for (const socket of open) socket.destroy();
  }, GOODBYE_LIMIT_MS);
  await closed;
  clearTimeout(limit);
}

const GOODBYE_LIMIT_MS = 1_000;
