import { createHash, randomBytes } from "node:crypto";
import { type ErrorCode, enrolText, TenureError, TOKEN_PREFIX } from "@tenure/protocol";
import { createAdmin, ROUTES } from "@tenure/sdk";
import type { AgentConfig } from "../config.ts";
import type { NodeIdentity } from "../identity.ts";
import type { AgentLog } from "../log.ts";
import { tlsOf } from "../tls-files.ts";
import { openTokenFiles, type StoredToken, type TokenFiles } from "./token-file.ts";

export interface EnrolOptions {
  config: Parameters<typeof tlsOf>[0] &
    Pick<AgentConfig, "host_urls" | "host_token" | "join_token" | "name" | "data_dir">;
  identity: Pick<NodeIdentity, "address" | "sign">;
  log: AgentLog;
  /** Resolves after the time, or at once when the signal aborts. */
  sleep: (ms: number, signal: AbortSignal | undefined) => Promise<void>;
  signal: AbortSignal | undefined;
}

export interface NodeToken {
  token?: string | undefined;
  /** The name that the join token gives the node. */
  name?: string | undefined;
}

const SECRET_BYTES = 32;
const BACKOFF_MS = { first: 500, max: 10_000 };
/** A retry would get the same answer. */
const FINAL: readonly ErrorCode[] = [
  ...(["UNAUTHENTICATED", "FORBIDDEN", "JOIN_TOKEN_USED", "INVALID_REQUEST", "CONFLICT"] as const),
];

/**
 * Returns the token of this node: the one of the settings, or the one of its data directory, or one that it gets for a join
 * token.
 *
 * The node makes the secret and writes it to disk before it sends the hash, so that an answer that is lost costs nothing: the
 * same request again gets the same answer. A join token that the stored token came from is not used again, and one that is
 * refused leaves a stored token in use.
 */
export async function nodeToken(options: EnrolOptions): Promise<NodeToken> {
  const { config, identity, log } = options;
  const { host_token, join_token } = config;
  if (host_token !== undefined) return { token: host_token };
  const files = openTokenFiles(config.data_dir, identity.address);
  const stored = await files.read();
  if (join_token === undefined) return used(stored ?? (await files.readJoining()));
  if (stored?.join_sha256 === sha256(join_token)) return used(stored);
  try {
    return used(await enrol(files, join_token, options));
  } catch (error) {
    if (!(error instanceof TenureError) || !stored) throw error;
    log({
      level: "warn",
      event: "join.refused",
      message: `the join token was refused; using the stored token: ${error.message}`,
      details: { code: error.code },
    });
    return used(stored);
  }
}

const used = (stored: StoredToken | undefined): NodeToken => ({
  token: stored?.secret,
  name: stored?.name,
});

async function enrol(
  files: TokenFiles,
  joinToken: string,
  { config, identity, log, sleep, signal }: EnrolOptions,
): Promise<StoredToken> {
  const { address } = identity;
  const join_sha256 = sha256(joinToken);
  const begun = await files.readJoining();
  const secret =
    begun?.join_sha256 === join_sha256
      ? begun.secret
      : TOKEN_PREFIX + randomBytes(SECRET_BYTES).toString("base64url");
  await files.writeJoining({ secret, address, join_sha256 });
  const token_sha256 = sha256(secret);
  const text = enrolText({ join_sha256, address, token_sha256 });
  const signature = Buffer.from(await identity.sign(Buffer.from(text))).toString("base64");
  const admin = createAdmin({ url: config.host_urls.map(httpUrl), tls: tlsOf(config) });
  const body = {
    ...{ join_token: joinToken, address, token_sha256, signature },
    ...(config.name !== undefined && { name: config.name }),
  };
  for (let waitMs = BACKOFF_MS.first; ; waitMs = Math.min(2 * waitMs, BACKOFF_MS.max)) {
    try {
      const { node_name: name, token_id } = await admin.call(ROUTES.enrolNode, { body });
      const token = { secret, address, join_sha256, ...(name !== undefined && { name }) };
      await files.write(token);
      log({
        level: "info",
        event: "join.done",
        message: "enrolled with the join token; the node's own token is in its data directory",
        details: { tokenId: token_id },
      });
      return token;
    } catch (error) {
      if (!(error instanceof TenureError) || FINAL.includes(error.code)) throw error;
      if (waitMs === BACKOFF_MS.first)
        log({
          level: "warn",
          event: "join.waiting",
          message: `could not enrol; will retry: ${error.message}`,
          details: { code: error.code },
        });
      await sleep(waitMs * (0.5 + Math.random() / 2), signal);
      signal?.throwIfAborted();
    }
  }
}

const sha256 = (text: string): string => createHash("sha256").update(text, "utf8").digest("hex");
const httpUrl = (url: string): string => url.replace(/^ws(s?):/, "http$1:");
