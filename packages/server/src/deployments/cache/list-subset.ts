import {
  byAge,
  CLAIM_CANDIDATES_MAX,
  type MatchWhole,
  rowsInWindow,
  type SkippedDeployment,
  serves,
  unfitness,
} from "@tenure/protocol";
import { type DeploymentRow, tenantOf } from "../deployment-row.ts";
import {
  concerns,
  isNotForReader,
  type ListOptions,
  type ListReader,
  listed,
  listedForOthers,
  needsSamples,
  parseRevision,
  profileOf,
  revisionAt,
  type WrittenList,
  withoutComma,
} from "./list-delta.ts";
import { type Demand, type HeldRow, type Owner, oldestOf } from "./subset-index.ts";

export interface SubsetOptions extends ListOptions {
  /** The owners whose rows the reader requests. */
  owners: readonly string[];
  /** The nodes that report to refuse a deployment, by its id: its owner, or former ones. */
  refused: ReadonlyMap<string, readonly string[]>;
}

/** Rows of other owners in one answer. */
const OTHERS_MAX = 512;
/** For them also in an answer that has no room left. */
const OTHERS_BYTES_MIN = 16 * 1_024;
/** Three heartbeats, as in the agent: by then the child has started and its node has sent a sample. */
const SAMPLE_LAG_MS = 15_000;
const OWNER_BYTES = 12;
const NAMED_OWNER_BYTES = 60;

/** What changed for the reader, in the order of the changes: a long answer is cut between two of them. */
type Part = { position: number } & ({ row: DeploymentRow } | { demand: Demand } | { owner: Owner });

/**
 * The list of a node with a built-in policy: the rows it runs, those it could claim in its next pass, and the number of
 * deployments per owner. It decides the same with them as with all rows, which it would receive twice when they appear:
 * once without and once with an owner.
 */
export function answerSubset(options: SubsetOptions): WrittenList {
  const { cache, origin, reader, revision } = options;
  const { subsets } = cache;
  const key = { origin, profile: `${profileOf(reader)}s` };
  const from = parseRevision(revision, key);
  // What was forgotten before the first part was requested does not concern a list that is read in parts.
  const since = from ? Math.max(from.position, from.began) : 0;
  const isKnown = from && since <= cache.position() && since >= subsets.floor();
  const known = isKnown ? from.position : 0;
  const began = known > 0 ? from!.began : cache.position();
  const isContinued = known > 0 && from!.isContinued;
  const written = createWritten(options, { known, namesAll: isContinued });
  let reached = known;
  let more = false;
  for (const part of partsAfter(known, options)) {
    // One change has several parts: a row, its demand, its owners.
    if (written.bytes > options.answerBytesMax && part.position > reached) {
      more = true;
      break;
    }
    reached = part.position;
    written.add(part);
  }
  const mayHaveLost = isContinued || known === 0 || subsets.heldChangedAt(reader.address) > known;
  const held = !more && mayHaveLost ? heldIds(options) : undefined;
  const isUnchanged = known > 0 && !more && !held && written.isEmpty;
  const hasSamples = needsSamples(cache, reader);
  const othersBytesMax = Math.max(OTHERS_BYTES_MIN, options.answerBytesMax - written.bytes);
  return {
    revision: more ? `${revisionAt(reached, key)}-${began}` : revisionAt(cache.position(), key),
    answer: isUnchanged ? "unchanged" : known > 0 ? "delta" : "full",
    items: written.items,
    removed: [],
    ...(written.skipped.length > 0 && { skipped: written.skipped }),
    ...(more && { more }),
    resource_usage: hasSamples ? options.samples(reader.tenants) : {},
    subset: [
      Buffer.from(
        `${JSON.stringify({
          ...(held && { held }),
          owners: written.owners,
          recent: hasSamples
            ? subsets.recent((tenant) => serves(reader.tenants, tenant), SAMPLE_LAG_MS)
            : {},
        }).slice(0, -1)},"free":[`,
      ),
      ...withoutComma(written.free),
      Buffer.from(`],"others":[`),
      ...withoutComma(othersFor(options, othersBytesMax)),
      Buffer.from("]}"),
    ],
  };
}

function partsAfter(known: number, { cache, reader, matches }: SubsetOptions): Part[] {
  const { subsets } = cache;
  const rows = heldBy(reader, cache.subsets).filter(({ position }) => position > known);
  if (reader.claim_policy === "none") return rows.sort(byPosition);
  const traits = traitsOf(reader);
  const demands = subsets.demands
    .since(known)
    .filter(({ item }) => isAble(item, { reader, traits, matches }))
    .map(({ position, item }) => ({ position, demand: item }));
  const owners = subsets.owners
    .since(known)
    .filter(({ item }) => serves(reader.tenants, item.tenant))
    .map(({ position, item }) => ({ position, owner: item }));
  return [...rows, ...demands, ...owners].sort(byPosition);
}

const byPosition = (a: Part, b: Part): number => a.position - b.position;

/** Every row that the reader has in full. */
function heldBy(reader: ListReader, subsets: SubsetOptions["cache"]["subsets"]): HeldRow[] {
  const own = [...subsets.ownRows(reader.address)];
  return [...own, ...subsets.common()].filter(
    ({ row }) =>
      serves(reader.tenants, tenantOf(row)) &&
      (!isNotForReader(row, reader) || isUnreadable(row, reader)),
  );
}

const isUnreadable = (row: DeploymentRow, reader: ListReader): boolean =>
  row.skipped !== undefined && row.isHidden === true && concerns(row, reader);

const heldIds = ({ reader, cache }: SubsetOptions): string[] =>
  heldBy(reader, cache.subsets).map(({ row }) => row.id);

function createWritten(
  options: SubsetOptions,
  { known, namesAll }: { known: number; namesAll: boolean },
) {
  const { reader } = options;
  const items: Buffer[] = [];
  const skipped: SkippedDeployment[] = [];
  const free: Buffer[] = [];
  const owners: [number: number, count: number, address?: string][] = [];
  let bytes = 0;

  function addRow(row: DeploymentRow): void {
    if (row.skipped && isUnreadable(row, reader)) {
      skipped.push({ id: row.id, reason: row.skipped.message });
      bytes += row.skipped.message.length;
      return;
    }
    const item = listed(row, options);
    items.push(item);
    bytes += item.length;
  }

  function addOwner({ number, address, createdAt, ...owner }: Owner): void {
    const count = owner.count + (address === reader.address ? owner.skipped : 0);
    // A list that is read in parts has no order in time: an owner may be older than the former part.
    const isNew = namesAll || createdAt > known;
    owners.push(isNew ? [number, count, address] : [number, count]);
    bytes += isNew ? NAMED_OWNER_BYTES : OWNER_BYTES;
  }

  return {
    ...{ items, skipped, free, owners },
    get bytes() {
      return bytes;
    },
    get isEmpty() {
      return items.length + skipped.length + free.length + owners.length === 0;
    },
    add(part: Part) {
      if ("row" in part) addRow(part.row);
      else if ("owner" in part) addOwner(part.owner);
      else {
        const parts = freeRows(part.demand, reader);
        free.push(...parts);
        bytes += parts.reduce((sum, { length }) => sum + length, 0);
      }
    },
  };
}

/** The oldest rows of the demand, and those of the reader's claim window: behind a comma, and the first item has it. */
function freeRows(demand: Demand, { address }: ListReader): Buffer[] {
  const { number, spec, rows } = demand;
  if (rows.size === 0) return [Buffer.from(`,${JSON.stringify({ demand: number, rows: [] })}`)];
  const head = Buffer.from(`,${JSON.stringify({ demand: number, spec }).slice(0, -1)},"rows":[`);
  const { json, ids } = oldestOf(demand);
  const window =
    rows.size < ids.size + 1
      ? []
      : rowsInWindow(address, CLAIM_CANDIDATES_MAX, rows.inShard).filter(({ id }) => !ids.has(id));
  const others = window.map((row) => `,${row.json}`).join("");
  return [head, json, Buffer.from(`${others}]}`)];
}

const traitsOfReaders = new WeakMap<ListReader, string>();

function traitsOf(reader: ListReader): string {
  const known = traitsOfReaders.get(reader) ?? profileOf({ ...reader, address: "" });
  traitsOfReaders.set(reader, known);
  return known;
}

const ABLE_MAX = 1_000;

/** Memoised by the traits, which most nodes of a fleet share. A row that is pinned depends on the address. */
function isAble(
  demand: Demand,
  { reader, traits, matches }: { reader: ListReader; traits: string; matches: MatchWhole },
): boolean {
  if (!serves(reader.tenants, demand.tenant)) return false;
  const { spec, ableBy } = demand;
  if (Object.hasOwn(spec.selector, "address")) return unfitness(spec, reader, matches).length === 0;
  const known = ableBy.get(traits);
  if (known !== undefined) return known;
  const able = unfitness(spec, reader, matches).length === 0;
  if (ableBy.size >= ABLE_MAX) ableBy.clear();
  ableBy.set(traits, able);
  return able;
}

/** Rows that the reader could take over: of owners that drain, and those that their owner refuses. Oldest first. */
function othersFor(
  { cache, reader, owners, refused, matches }: SubsetOptions,
  bytesMax: number,
): Buffer[] {
  if (reader.claim_policy === "none") return [];
  const found = new Map<string, DeploymentRow>();
  const add = (row: DeploymentRow) => {
    if (row.skipped || row.type !== "deployment" || !row.enabled) return;
    if (row.address === "" || row.address === reader.address || row.moving_to !== "") return;
    if (!serves(reader.tenants, tenantOf(row))) return;
    if (unfitness(row, reader, matches).length === 0) found.set(row.id, row);
  };
  for (const owner of owners)
    for (const { row } of cache.subsets.ownRows(owner)) if (row.address === owner) add(row);
  for (const [id, by] of refused) {
    const row = cache.get(id);
    if (row && by.includes(row.address)) add(row);
  }
  return oldestWithin([...found.values()], bytesMax);
}

/** The oldest rows, as they are sent; at least one. */
function oldestWithin(rows: readonly DeploymentRow[], bytesMax: number): Buffer[] {
  const aged = rows.map((row) => ({
    ...{ id: row.id, row, created_at: row.created_at.toISOString() },
    updated_at: row.updated_at.toISOString(),
  }));
  const written: Buffer[] = [];
  let bytes = 0;
  for (const { row } of aged.sort(byAge).slice(0, OTHERS_MAX)) {
    const item = listedForOthers(row);
    bytes += item.length;
    if (bytes > bytesMax && written.length > 0) break;
    written.push(item);
  }
  return written;
}
