import * as z from "zod";

/** How far a database is known to have got. The same shape in Redis, in the witness file and for `nonce_check_history`. */
export const Position = z.object({
  /** Postgres' system identifier; empty where the role may not read it. */
  system: z.string(),
  /** Which confirmation and which run of the server it was, in microseconds since 1970. */
  confirmed_at: z.int(),
  run: z.int(),
  /** A commit lay above this WAL position; as Postgres writes it. */
  wal: z.string().regex(/^[0-9A-F]{1,8}\/[0-9A-F]{1,8}$/),
  /** What that commit left behind: the row of one signer. */
  signer: z.string().optional(),
  fencing_token: z.int().optional(),
  next_nonce: z.int().optional(),
});
export type Position = z.infer<typeof Position>;

/** Remembers the newest position outside the database. */
export interface Witness {
  readonly name: string;
  read(): Promise<Position | undefined>;
  /** Resolves when this position or a newer one is remembered. */
  write(position: Position): Promise<void>;
}

export function newest(...positions: (Position | undefined)[]): Position | undefined {
  return positions.reduce((best, each) => (each && (!best || isNewer(each, best)) ? each : best));
}

/** A confirmation makes what came before it incomparable; under the same one the WAL only grows. */
export function isNewer(a: Position, b: Position): boolean {
  if (a.confirmed_at !== b.confirmed_at) return a.confirmed_at > b.confirmed_at;
  return walBytes(a.wal) > walBytes(b.wal);
}

export function walBytes(wal: string): bigint {
  const [high = "0", low = "0"] = wal.split("/");
  return (BigInt(`0x${high}`) << 32n) + BigInt(`0x${low}`);
}

/**
 * One write at a time, and each for all who wait: a caller's position is remembered when its call resolves, and a
 * hundred commits during one write cost one more.
 */
export function coalesced(witness: Witness): Witness {
  let wanted: Position | undefined;
  let written: Position | undefined;
  let writing: Promise<void> | undefined;

  async function writeWanted(): Promise<void> {
    const next = wanted!;
    await witness.write(next);
    written = next;
  }

  return {
    ...witness,
    async write(position) {
      wanted = newest(wanted, position);
      while (!written || isNewer(position, written)) {
        writing ??= writeWanted().finally(() => {
          writing = undefined;
        });
        await writing;
      }
    },
  };
}
