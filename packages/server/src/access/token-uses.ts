import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import { every, type Service } from "../kernel/service.ts";
import type { Db } from "../store/db.ts";
import { recordUses } from "./token-store.ts";

export interface TokenUsesOptions {
  db: Db;
  clock: Clock;
  log: Log;
}

const STORE_MS = 60_000;
const BATCH_MAX = 1_000;

/** When tokens were used last at this instance. Stored once a minute, in batches; what could not be stored is kept. */
export class TokenUses implements Service {
  readonly #options: TokenUsesOptions;
  readonly #lastMs = new Map<string, number>();
  readonly #loop: Service;

  constructor(options: TokenUsesOptions) {
    this.#options = options;
    let isFirst = true;
    const store = async () => {
      if (!isFirst) await this.store();
      isFirst = false;
    };
    this.#loop = every(STORE_MS, store, {
      clock: options.clock,
      onError: (error) =>
        options.log.warn(
          { event: "tokens.uses-not-stored", error },
          "could not store when tokens were used; will retry",
        ),
    });
  }

  note(id: string): void {
    this.#lastMs.set(id, this.#options.clock.monotonicMs());
  }

  async store(): Promise<void> {
    const { db, clock } = this.#options;
    while (this.#lastMs.size > 0) {
      const uses = [...this.#lastMs].slice(0, BATCH_MAX);
      const nowMs = clock.monotonicMs();
      await recordUses(
        db,
        uses.map(([id, atMs]) => ({ id, agoMs: Math.max(0, nowMs - atMs) })),
      );
      for (const [id, atMs] of uses) if (this.#lastMs.get(id) === atMs) this.#lastMs.delete(id);
    }
  }

  start(): void {
    this.#loop.start();
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    await this.store().catch(() => {}); // The last minute is lost when Postgres is down.
  }
}
