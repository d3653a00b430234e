import type { Db } from "../store/db.ts";
import { type NodeUnitRow, readNodeUnits } from "./store/node-unit-store.ts";
import { type KnownUnit, type OnlineRead, readOnlineUnits } from "./store/online-unit-store.ts";

/** Three heartbeats: the sample of a node-unit that was silent for longer is not compared with others. */
const HEARTBEATS_MS = 15_000;

/**
 * The rows of the node-units that are online, as of the last look. A look reads one digest of all and, if it is another than
 * that of the last look, the rows that differ from those that are known. A row that has not changed stays the same object.
 *
 * - `#units` are the rows and marks of one read, and `#digest` that of the same read: both change together.
 * - `#beyond` are rows that are online and have an epoch that no connection has: written by SQL, and read by each look.
 */
export class OnlineUnits {
  readonly #db: Db;
  readonly #silentWithinMs: number;
  #units = new Map<string, KnownUnit>();
  #digest: string | undefined;
  #rows: readonly NodeUnitRow[] = [];
  #beyond: readonly string[] = [];
  #silent: ReadonlySet<string> = new Set();

  constructor(db: Db, presenceTtlMs: number) {
    this.#db = db;
    this.#silentWithinMs = presenceTtlMs - HEARTBEATS_MS;
  }

  /** Present node-units that were not renewed for three heartbeats. */
  get silent(): ReadonlySet<string> {
    return this.#silent;
  }

  /** The rows that are online, and those that went offline since the last look. */
  async read(): Promise<readonly NodeUnitRow[]> {
    const look = await this.#look();
    const away = [
      ...look.gone.flatMap(({ address, row }) => (row ? this.#sound(address, row) : [])),
      ...(await readNodeUnits(this.#db, this.#beyond)),
    ];
    // No await from here: what is known belongs to one read.
    this.#silent = look.silent;
    this.#digest = look.digest;
    if (look.changed.length + look.gone.length > 0) this.#apply(look);
    const others = away.filter(({ address }) => !this.#units.has(address));
    this.#beyond = others.filter(({ online }) => online).map(({ address }) => address);
    return others.length > 0 ? [...this.#rows, ...others] : this.#rows;
  }

  async #look(): Promise<OnlineRead> {
    const read = (known?: ReadonlyMap<string, KnownUnit>) =>
      readOnlineUnits(this.#db, this.#silentWithinMs, known);
    if (this.#digest === undefined) return read(this.#units);
    const look = await read();
    return look.digest === this.#digest ? look : read(this.#units);
  }

  #apply({ changed, gone }: OnlineRead): void {
    for (const { address } of gone) this.#units.delete(address);
    const isJoined = changed.some(({ row }) => !this.#units.has(row.address));
    for (const { mark, row } of changed)
      this.#units.set(row.address, { mark, row: this.#sound(row.address, row) });
    if (isJoined) this.#units = new Map([...this.#units].sort(byAddress));
    this.#rows = [...this.#units.values()].map(({ row }) => row);
  }

  /** A row that cannot be read keeps its former traits. */
  #sound(address: string, row: NodeUnitRow): NodeUnitRow {
    const former = this.#units.get(address)?.row;
    if (!former || !row.invalid) return row;
    const { labels, tags, claim_policy, instance_id } = former;
    return { ...row, labels, tags, claim_policy, instance_id };
  }
}

const byAddress = ([a]: [string, unknown], [b]: [string, unknown]): number => (a < b ? -1 : 1);
