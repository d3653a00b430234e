import { createHash } from "node:crypto";
import {
  type CallResult,
  DEFAULT_TENANT,
  isDeploymentType,
  type ListedDeployment,
  loaderVariables,
  type MatchWhole,
  type NodeTraits,
  type ResourceUsage,
  type SkippedDeployment,
  serves,
  takesSecrets,
  unfitness,
  usesSecrets,
} from "@tenure/protocol";
import { type DeploymentRow, renderDeployment, tenantOf } from "../deployment-row.ts";
import type { CachedChange, DeploymentCache } from "./deployment-cache.ts";

/** The node that reads the list. Its traits decide what it may run, and so what it sees. */
export interface ListReader extends NodeTraits {
  claim_policy: string;
}

export interface ListOptions {
  cache: DeploymentCache;
  /** Identifies this instance's cache: positions of another cache mean nothing here. */
  origin: string;
  reader: ListReader;
  revision: string | undefined;
  matches: MatchWhole;
  /** The samples of node-units that share one of these tenants. */
  samples: (tenants: readonly string[] | undefined) => Record<string, ResourceUsage>;
  /** The token of the children of a term. */
  tokenOf?: (term: { id: string; generation: number }) => string;
  /** Above this the answer is cut, and the node requests the rest. */
  answerBytesMax: number;
}

/** A list whose rows are the JSON they go out as, each behind a comma. */
export interface WrittenList extends Omit<CallResult<"deployment.list">, "items" | "subset"> {
  items: Buffer[];
  /** The JSON of `subset`. */
  subset?: Buffer[];
}

/** The JSON of a list in parts, which are the cache's own bytes: they are copied once, into the frame. */
export function listParts({ items, subset, ...rest }: WrittenList): Buffer[] {
  const head = Buffer.from(`${JSON.stringify(rest).slice(0, -1)},"items":[`);
  const after = subset
    ? [Buffer.from(`],"subset":`), ...subset, Buffer.from("}")]
    : [Buffer.from("]}")];
  return [head, ...withoutComma(items), ...after];
}

/** Each item begins with a comma; the first of an array must not. */
export const withoutComma = ([first, ...others]: Buffer[]): Buffer[] =>
  first ? [first.subarray(1), ...others] : [];

/** Answers `unchanged`, the changes since the reader's revision, or a full list when that revision is unknown here. */
export function answerList(options: ListOptions): WrittenList {
  const { cache, origin, reader, revision } = options;
  const key = { origin, profile: profileOf(reader) };
  const from = parseRevision(revision, key);
  const known = from && cache.reaches(Math.max(from.position, from.began)) ? from.position : 0;
  const began = known > 0 ? from!.began : cache.position();
  const resource_usage = needsSamples(cache, reader) ? options.samples(reader.tenants) : {};
  if (known > 0 && known === cache.position()) {
    return {
      revision: revisionAt(known, key),
      answer: "unchanged",
      items: [],
      removed: [],
      resource_usage,
    };
  }
  const items: Buffer[] = [];
  const removed: string[] = [];
  const skipped: SkippedDeployment[] = [];
  let bytes = 0;
  let reached = known;
  let more = false;
  for (const change of cache.since(known)) {
    const { position, id, row } = change;
    if (bytes > options.answerBytesMax) {
      more = true;
      break;
    }
    reached = position;
    if (!isOfReader(row, reader)) {
      if (known === 0 || !hasDeparted(change, reader, Math.min(known, began))) continue;
      removed.push(id);
      bytes += 40;
      continue;
    }
    if (row?.skipped && row.isHidden && concerns(row, reader)) {
      skipped.push({ id, reason: row.skipped.message });
      bytes += row.skipped.message.length;
      continue;
    }
    if (isNotForReader(row, reader)) {
      if (known > 0) removed.push(id);
      bytes += 40;
      continue;
    }
    const item = listed(row, options);
    items.push(item);
    bytes += item.length;
  }
  return {
    revision: more ? `${revisionAt(reached, key)}-${began}` : revisionAt(cache.position(), key),
    answer: known > 0 ? "delta" : "full",
    items,
    removed,
    ...(skipped.length > 0 && { skipped }),
    ...(more && { more }),
    resource_usage,
  };
}

const isOfReader = (
  row: DeploymentRow | undefined,
  { tenants }: ListReader,
): row is DeploymentRow => row !== undefined && serves(tenants, tenantOf(row));

/**
 * Whether a list after this position may have contained the row. The position comes from the reader, so it must not decide
 * alone: ids of rows that the reader's tenants never had are not listed.
 */
const hasDeparted = (
  { departures }: CachedChange,
  { tenants }: ListReader,
  since: number,
): boolean =>
  departures.some(({ tenant, position }) => position > since && serves(tenants, tenant));

/** The revision of a list that is read now; sent with `deployments_changed`. */
export function currentRevision(
  cache: DeploymentCache,
  origin: string,
  reader: ListReader,
): string {
  return revisionAt(cache.position(), { origin, profile: profileOf(reader) });
}

const shownToOthers = new WeakMap<DeploymentRow, Buffer>();

/**
 * `args` and `env` may contain secrets: only the node that runs the deployment, or takes it over next, gets them. For all
 * other nodes a row is serialized once, to bytes: 1,000 nodes that read 10,000 rows at once cost an instance a minute with
 * JSON per node, and 20 s with strings that were concatenated.
 */
export function listed(
  row: DeploymentRow,
  { reader, matches, tokenOf }: Pick<ListOptions, "reader" | "matches" | "tokenOf">,
): Buffer {
  if (!takesSecrets(reader) && usesSecrets(row)) return written(refusedForm(row));
  if (!runs(row, reader, matches)) return listedForOthers(row);
  // Not for the node that takes it over next, whose term has not begun.
  const isOwn = row.type === "daemon" || row.address === reader.address;
  return written({ ...ownForm(row), ...(isOwn && tokenOf && { child_token: tokenOf(row) }) });
}

function ownForm(row: DeploymentRow): ListedDeployment {
  const { secret_versions = {} } = row;
  const item = renderDeployment(row);
  return Object.keys(secret_versions).length > 0 ? { ...item, secret_versions } : item;
}

/** No node has this label. An agent that does not know secrets sees that it may not run the row; an owner reports `refused`. */
const NO_NODE = { "tenure/needs-an-agent-with-secrets": "true" };

const refusedForm = (row: DeploymentRow): ListedDeployment => ({
  ...withoutSecrets(row),
  selector: { ...row.selector, ...NO_NODE },
});

/** The row without `args` and `env`, behind a comma. */
export function listedForOthers(row: DeploymentRow): Buffer {
  const known = shownToOthers.get(row) ?? written(withoutSecrets(row));
  shownToOthers.set(row, known);
  return known;
}

const written = (item: ListedDeployment): Buffer => Buffer.from(`,${JSON.stringify(item)}`);

function withoutSecrets(row: DeploymentRow): ListedDeployment {
  const { args, env, ...rest } = renderDeployment(row);
  const loader_env = [...loaderVariables(env)];
  return {
    ...rest,
    ...(loader_env.length > 0 && { loader_env }),
    ...(usesSecrets(row) && { uses_secrets: true }),
  };
}

/** Whether to leave out a skipped row: the reader does not run it, and cannot claim, release or take it over. */
export function isNotForReader(row: DeploymentRow, reader: ListReader): boolean {
  if (!row.skipped) return false;
  return row.isHidden === true || (isDeploymentType(row.type) && !concerns(row, reader));
}

export const concerns = ({ type, enabled, address }: DeploymentRow, reader: ListReader): boolean =>
  enabled && (type === "daemon" || address === reader.address);

function runs(row: DeploymentRow, reader: ListReader, matches: MatchWhole): boolean {
  if (row.type === "daemon") return row.enabled && unfitness(row, reader, matches).length === 0;
  return (
    row.type === "deployment" &&
    (row.address === reader.address || row.moving_to === reader.address)
  );
}

/** Samples are only needed while there is something to claim, and by policies that compare load. */
export function needsSamples(cache: DeploymentCache, { claim_policy }: ListReader): boolean {
  return cache.count("unassigned") > 0 && !["deployment_count", "none"].includes(claim_policy);
}

interface RevisionKey {
  origin: string;
  profile: string;
}

export const revisionAt = (position: number, { origin, profile }: RevisionKey): string =>
  `${origin}.${profile}.${position}`;

/**
 * `began` is the position of the cache when the reader requested the first part of a long list. Removals dropped before that
 * do not concern it; without `began` it might have to start over each time.
 */
export function parseRevision(
  revision: string | undefined,
  { origin, profile }: RevisionKey,
): { position: number; began: number; isContinued: boolean } | undefined {
  const prefix = `${origin}.${profile}.`;
  if (!revision?.startsWith(prefix)) return undefined;
  const [, position, began] =
    /^(\d{1,15})(?:-(\d{1,15}))?$/.exec(revision.slice(prefix.length)) ?? [];
  return position === undefined
    ? undefined
    : {
        position: Number(position),
        began: Number(began ?? position),
        isContinued: began !== undefined,
      };
}

const profiles = new WeakMap<ListReader, string>();

/** A node that reconnects with other labels or another trust may run other daemons: it reads a full list. */
export function profileOf(reader: ListReader): string {
  const known = profiles.get(reader) ?? hashOfTraits(reader);
  profiles.set(reader, known);
  return known;
}

function hashOfTraits({
  address,
  labels,
  trusted_package_regexp,
  custom_command,
  tags,
  tenants = [DEFAULT_TENANT],
}: ListReader): string {
  const traits = JSON.stringify([
    address,
    Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)),
    trusted_package_regexp,
    custom_command,
    [...tenants].sort(),
    takesSecrets({ tags }),
  ]);
  return createHash("sha256").update(traits).digest("base64url").slice(0, 12);
}
