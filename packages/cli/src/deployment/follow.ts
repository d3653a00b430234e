import { setTimeout as wait } from "node:timers/promises";
import { LogLines, type LogPosition } from "@tenure/protocol";
import { type Admin, ROUTES, serverEvents, TenureError, type TlsFiles } from "@tenure/sdk";

export interface FollowLogOptions {
  admin: Admin;
  url: string;
  token: string | undefined;
  tls?: TlsFiles | undefined;
  /** The deployment, by id or name. */
  id: string;
  query: Record<string, string>;
  signal: AbortSignal;
  /** Called with `undefined` when the stream ends, and with the address when it continues on another node. */
  onMove: (address: string | undefined) => void;
  /** How often to check for another owner. */
  pollEveryMs?: number;
}

/**
 * Yields the lines of a log as they are written, from one owner after another, until the caller aborts or the deployment
 * is deleted. The same node resumes at the last position, another node at the last lines of its own log.
 */
export async function* followLog(options: FollowLogOptions): AsyncGenerator<string[]> {
  const { admin, id, query, signal, onMove, pollEveryMs = 1_000 } = options;
  let reached: { node: string | undefined; next: LogPosition } | undefined;
  let followed: string | undefined;
  let opened = false;
  for (; !signal.aborted; await wait(pollEveryMs, undefined, { signal }).catch(() => {})) {
    const moved = new AbortController();
    let watching: Promise<void> | undefined;
    try {
      const node = await owner();
      if (opened && node === "") continue;
      if (opened && node !== followed) onMove(node);
      followed = node;
      watching = watch(node, moved);
      for await (const { lines, next } of chunks(node, AbortSignal.any([signal, moved.signal]))) {
        reached = { node, next };
        yield lines;
      }
      onMove(undefined);
    } catch (error) {
      if (signal.aborted) return;
      if (!moved.signal.aborted && !(opened && isTemporary(error))) throw error;
      if (!moved.signal.aborted && watching) onMove(undefined);
    } finally {
      moved.abort();
      await watching;
    }
  }

  /** The node to follow: "" without an owner, `undefined` for a daemon, where the server chooses a node. */
  async function owner(): Promise<string | undefined> {
    const { type, address } = await admin.call(ROUTES.readDeployment, { params: { id } });
    return query.node ?? (type === "daemon" ? undefined : address);
  }

  async function* chunks(node: string | undefined, signal: AbortSignal) {
    const from = reached && reached.node === node ? { from: reached.next } : {};
    const search = { ...query, ...(node && { node }), ...from, follow: "true" };
    const path = ROUTES.readLogs.path.replace(":id", encodeURIComponent(id));
    const { url, token, tls } = options;
    const onOpen = () => {
      opened = true;
    };
    const events = serverEvents(`${path}?${new URLSearchParams(search)}`, {
      ...{ url, token, tls, signal, onOpen },
    });
    for await (const { event, data } of events) {
      if (event === "end") return;
      yield LogLines.parse(JSON.parse(data));
    }
  }

  /** Aborts when the owner changes. The log of the previous owner does not end, because that node stays connected. */
  async function watch(node: string | undefined, moved: AbortController): Promise<void> {
    if (query.node !== undefined || node === undefined) return;
    while (!moved.signal.aborted) {
      await wait(pollEveryMs, undefined, { signal: moved.signal }).catch(() => {});
      const now = await owner().catch((): string | undefined => node);
      if (now && now !== node) moved.abort();
    }
  }
}

/** A broken connection, an unavailable instance or node, or a log that does not exist yet. */
function isTemporary(error: unknown): boolean {
  if (!(error instanceof TenureError)) return error instanceof Error;
  const { what } = error.details as { what?: string };
  return error.retryable || (error.code === "NOT_FOUND" && what !== "deployment");
}
