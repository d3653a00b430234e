/** The value types of Redis that scripts use in memory. A sorted set maps members to scores. */
interface Kinds {
  string: { value: string };
  hash: Map<string, string>;
  set: Set<string>;
  zset: Map<string, number>;
  list: string[];
  /** An object of a domain in place of a hash and of texts beside it. */
  record: object;
}

interface Entry {
  kind: keyof Kinds;
  value: Kinds[keyof Kinds];
  expiresAtMs: number;
}

/** Half a millisecond of work. A sweep of a million keys in one step delayed every job by 0.2 s. */
const KEYS_A_STEP = 2_000;

/**
 * The keyspace of the memory store: the same keys and structures as in Redis. An expired key is dropped when it is read,
 * so correctness does not depend on a timer.
 */
export class MemorySpace {
  readonly #entries = new Map<string, Entry>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  nowMs(): number {
    return this.#nowMs();
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: string): string | undefined {
    return this.#find(key, "string")?.value;
  }

  set(key: string, value: string, ttlMs = Number.POSITIVE_INFINITY): void {
    this.#entries.set(key, {
      kind: "string",
      value: { value },
      expiresAtMs: this.#nowMs() + ttlMs,
    });
  }

  hash(key: string): Map<string, string> {
    return this.#findOrCreate(key, "hash", () => new Map());
  }

  members(key: string): Set<string> {
    return this.#findOrCreate(key, "set", () => new Set());
  }

  scores(key: string): Map<string, number> {
    return this.#findOrCreate(key, "zset", () => new Map());
  }

  list(key: string): string[] {
    return this.#findOrCreate(key, "list", () => []);
  }

  /** The same object as was set: the caller may change it. */
  record(key: string): object | undefined {
    return this.#find(key, "record");
  }

  setRecord(key: string, value: object, ttlMs: number): void {
    this.#entries.set(key, { kind: "record", value, expiresAtMs: this.#nowMs() + ttlMs });
  }

  has(key: string): boolean {
    return this.#live(key) !== undefined;
  }

  delete(key: string): boolean {
    const existed = this.has(key);
    this.#entries.delete(key);
    return existed;
  }

  /** `Infinity` is Redis' PERSIST. A key that is not there stays absent. */
  expire(key: string, ttlMs: number): void {
    const entry = this.#live(key);
    if (entry) entry.expiresAtMs = this.#nowMs() + ttlMs;
  }

  /**
   * Drops expired and empty keys, some per step, so that the caller can yield to other work in between. Reads never
   * return such a key.
   */
  *sweep(): Generator<void> {
    let left = KEYS_A_STEP;
    for (const [key, entry] of this.#entries) {
      if (isEmpty(entry) || entry.expiresAtMs <= this.#nowMs()) this.#entries.delete(key);
      if (--left > 0) continue;
      yield;
      left = KEYS_A_STEP;
    }
  }

  #live(key: string): Entry | undefined {
    const entry = this.#entries.get(key);
    if (!entry || entry.expiresAtMs === Number.POSITIVE_INFINITY) return entry;
    if (entry.expiresAtMs > this.#nowMs()) return entry;
    this.#entries.delete(key);
    return undefined;
  }

  #find<K extends keyof Kinds>(key: string, kind: K): Kinds[K] | undefined {
    const entry = this.#live(key);
    if (!entry) return undefined;
    if (entry.kind !== kind)
      throw new Error(`WRONGTYPE ${key} holds a ${entry.kind}, not a ${kind}`);
    return entry.value as Kinds[K];
  }

  #findOrCreate<K extends keyof Kinds>(key: string, kind: K, create: () => Kinds[K]): Kinds[K] {
    const found = this.#find(key, kind);
    if (found) return found;
    const value = create();
    this.#entries.set(key, { kind, value, expiresAtMs: Number.POSITIVE_INFINITY });
    return value;
  }
}

function isEmpty({ kind, value }: Entry): boolean {
  if (kind === "string" || kind === "record") return false;
  return kind === "list" ? (value as string[]).length === 0 : (value as Set<string>).size === 0;
}
