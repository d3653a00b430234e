import { isTokenSecret, TenureError } from "@tenure/protocol";
import type { AuthToken } from "../config/tokens.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { every, type Service } from "../kernel/service.ts";
import type { PostgresStore } from "../store/db.ts";
import { createTableRefresh } from "../store/table-refresh.ts";
import type { TokenRef, TokenSource } from "./authenticator.ts";
import type { Principal } from "./principal.ts";
import { isGood, TokenCache } from "./token-cache.ts";
import { readTokenRow, type TableToken } from "./token-codec.ts";
import { readTokenHashes, readTokenMark, readTokensAfter, type TokenRow } from "./token-store.ts";
import { TokenUses } from "./token-uses.ts";

export interface TableTokensOptions {
  db: PostgresStore;
  clock: Clock;
  log: Log;
  /** How long tokens are accepted from memory while Postgres does not answer. */
  offlineMs: number;
  principalOf: (rule: AuthToken) => Principal;
  /** Called when rows changed, or a token expired. */
  onChange: () => void;
}

export interface TableTokens extends TokenSource, Service {
  /** Rejects when Postgres does not answer: an instance starts with the tokens known. */
  open(): Promise<void>;
  /** Takes over a row that this instance wrote. */
  written(row: TokenRow): void;
  /** The token of a secret in whatever state; reads the table first for one that is not known. Rejects with `DEPENDENCY_DOWN`. */
  lookUp(sha256: string): Promise<TableToken | undefined>;
  /** The rules of all rows that grant something, or did. */
  rules(): AuthToken[];
  nowMs(): number;
}

const POLL_MS = 1_000;
/** How often all rows are compared: a restored copy may have the same version, and triggers can be off. */
const COMPARE_MS = 60_000;
const SLOW_ANSWER_MS = 1_000;
/** Unknown secrets cause at most one read of the table in this time; all that arrive meanwhile share it. */
const MISS_PAUSE_MS = 200;
/** How long a caller with an unknown secret waits for that read. */
const MISS_LIMIT_MS = 4_000;
/** How often tokens that expire are looked for. */
const EXPIRY_MS = 250;

/**
 * The tokens of the table, all in memory. `#cache` follows the table: a notification or a poll each second reads what changed.
 * What is in it is decided without a statement, also while Postgres is away; a secret that is not in it is looked for by
 * reading what changed since, once for all callers that wait.
 */
class Tokens implements TableTokens {
  readonly #options: TableTokensOptions;
  readonly #cache = new TokenCache();
  readonly #uses: TokenUses;
  readonly #refresh;
  readonly #expiries: Service;
  /** Ids and hashes of rows that were reported as not valid. */
  readonly #reported = new Map<string, string>();
  /** The time of Postgres, less this process's own. */
  #offsetMs = 0;
  /** When the last read that succeeded began. */
  #readMs: number | undefined;
  #comparedMs = Number.NEGATIVE_INFINITY;
  /** When the read that runs began. */
  #runningMs: number | undefined;
  #failure: unknown;
  #miss: Promise<void> | undefined;
  #missMs = Number.NEGATIVE_INFINITY;
  #expiryCheckedMs = Number.NEGATIVE_INFINITY;

  constructor(options: TableTokensOptions) {
    const { db, clock, log } = options;
    this.#options = options;
    this.#uses = new TokenUses(options);
    this.#refresh = createTableRefresh({
      ...{ db, clock, channel: "tenure_token", intervalMs: POLL_MS },
      read: () => this.#read(),
      onReadError: (error) => {
        if (this.#failure === undefined)
          log.warn(
            { event: "tokens.not-read", error },
            "could not read the tokens; known ones stay valid, will retry",
          );
        this.#failure = error;
      },
      onListenError: (error) =>
        log.warn(
          { event: "tokens.not-woken", error },
          "could not listen for changes of tokens; polling every second",
        ),
    });
    this.#expiries = every(EXPIRY_MS, async () => this.#expire(), { clock, onError: () => {} });
  }

  open(): Promise<void> {
    return this.#read();
  }

  start(): void {
    this.#refresh.start();
    this.#expiries.start();
    this.#uses.start();
  }

  async stop(): Promise<void> {
    await Promise.all([this.#refresh.stop(), this.#expiries.stop(), this.#uses.stop()]);
  }

  nowMs(): number {
    return this.#options.clock.monotonicMs() + this.#offsetMs;
  }

  rules(): AuthToken[] {
    return [...this.#cache.all()].flatMap(({ rule }) => ("problem" in rule ? [] : rule));
  }

  claims(secret: string): boolean {
    return isTokenSecret(secret);
  }

  async find({ secret, sha256 }: { secret: string; sha256: string }) {
    if (!isTokenSecret(secret)) return undefined;
    const token = await this.lookUp(sha256);
    if (token && isGood(token, sha256, this.nowMs())) this.#requireKnowledge();
    return this.current(sha256);
  }

  async configured({ name, sha256 }: TokenRef): Promise<Principal | undefined> {
    const principal = this.current(sha256);
    if (principal) this.#requireKnowledge();
    return principal?.name === name ? principal : undefined;
  }

  current(sha256: string): Principal | undefined {
    const token = this.#cache.find(sha256);
    if (!token || token.isJoin || "problem" in token.rule) return undefined;
    if (!isGood(token, sha256, this.nowMs())) return undefined;
    this.#uses.note(token.id);
    return { ...this.#options.principalOf(token.rule), sha256 };
  }

  async lookUp(sha256: string): Promise<TableToken | undefined> {
    const known = this.#cache.find(sha256);
    if (known) return known;
    await this.#catchUp();
    return this.#cache.find(sha256);
  }

  written(row: TokenRow): void {
    this.#cache.apply([readTokenRow(row)]);
    this.#options.onChange();
  }

  /** After too long without Postgres a revocation may have been missed. */
  #requireKnowledge(): void {
    const { clock, offlineMs } = this.#options;
    if (clock.monotonicMs() - (this.#readMs ?? Number.NEGATIVE_INFINITY) > offlineMs)
      throw down("tokens were not read for longer than auth.offline_max_seconds");
  }

  /** Resolves after a read that began after this call. Callers within the pause share one. */
  async #catchUp(): Promise<void> {
    const { clock } = this.#options;
    const isStuck = clock.monotonicMs() - (this.#runningMs ?? Infinity) > MISS_LIMIT_MS;
    if (isStuck) throw down("the tokens are being read");
    this.#miss ??= this.#readForMisses().finally(() => {});
    await this.#miss;
    if (this.#failure !== undefined) throw down("the tokens cannot be read");
  }

  async #readForMisses(): Promise<void> {
    const { clock } = this.#options;
    await clock.sleep(Math.max(0, this.#missMs + MISS_PAUSE_MS - clock.monotonicMs()));
    this.#missMs = clock.monotonicMs();
    this.#miss = undefined;
    if (!(await this.#within(this.#refresh.refresh()))) throw down("the tokens are being read");
  }

  /** False when it took too long. */
  async #within(work: Promise<void>): Promise<boolean> {
    const limit = new AbortController();
    const late = this.#options.clock.sleep(MISS_LIMIT_MS, limit.signal).then(() => false);
    const done = await Promise.race([work.then(() => true), late]);
    limit.abort();
    return done;
  }

  async #read(): Promise<void> {
    const { clock } = this.#options;
    const beganMs = clock.monotonicMs();
    this.#runningMs = beganMs;
    try {
      await this.#follow(beganMs);
    } finally {
      this.#runningMs = undefined;
    }
    this.#readMs = beganMs;
    this.#failure = undefined;
  }

  async #follow(beganMs: number): Promise<void> {
    const { db, clock } = this.#options;
    const mark = await readTokenMark(db);
    // A slow answer is a wrong clock.
    const tookMs = clock.monotonicMs() - beganMs;
    if (tookMs < SLOW_ANSWER_MS || this.#readMs === undefined)
      this.#offsetMs = mark.now.getTime() - beganMs;
    const since = this.#cache.missingSince(mark) ?? (await this.#compared(beganMs));
    if (since === undefined) return;
    const tokens = (await readTokensAfter(db, since)).map(readTokenRow);
    if (since === 0) this.#cache.replace(tokens, mark.version);
    else this.#cache.apply(tokens, mark.version);
    this.#report(tokens);
    this.#options.onChange();
  }

  /** Compares all rows now and then: 0 = read all of them. */
  async #compared(nowMs: number): Promise<0 | undefined> {
    if (nowMs - this.#comparedMs < COMPARE_MS) return undefined;
    this.#comparedMs = nowMs;
    if (!this.#cache.matches(await readTokenHashes(this.#options.db))) return 0;
    // Notes what is open as in use.
    this.#options.onChange();
    return undefined;
  }

  #report(tokens: readonly TableToken[]): void {
    for (const { id, hash, rule } of tokens) {
      if (!("problem" in rule)) this.#reported.delete(id);
      else if (this.#reported.get(id) !== hash) {
        this.#reported.set(id, hash);
        this.#options.log.error(
          { event: "tokens.invalid", token: id, problem: rule.problem },
          "a row of the table token is not valid; it grants nothing",
        );
      }
    }
  }

  /** Reports that a token ended by time, once. */
  #expire(): void {
    const [fromMs, nowMs] = [this.#expiryCheckedMs, this.nowMs()];
    this.#expiryCheckedMs = nowMs;
    const hasEnded = (ms: number) => ms > fromMs && ms <= nowMs;
    for (const { endsMs, formerUntilMs } of this.#cache.all())
      if (hasEnded(endsMs) || hasEnded(formerUntilMs)) {
        this.#options.onChange();
        return;
      }
  }
}

export const createTableTokens = (options: TableTokensOptions): TableTokens => new Tokens(options);

const down = (reason: string): TenureError =>
  new TenureError("DEPENDENCY_DOWN", { dependency: "postgres", reason });
