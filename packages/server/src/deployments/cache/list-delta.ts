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
  unfitness,
} from "@tenure/protocol";
import { type DeploymentRow, renderDeployment } from "../deployment-row.ts";
import type { ChangeLog } from "./deployment-cache.ts";

/** Above this an answer is cut and the node asks for the rest: frames have a limit on both sides. */
export const ANSWER_BYTES_MAX = 512 * 1_024;

/** Who asks: what a node gets to see depends on what it runs, and that on what it said of itself. */
export interface ListReader extends NodeTraits {
  claim_policy: string;
}

export interface ListOptions {
  log: ChangeLog;
  /** Names this instance's copy: positions of another one mean nothing here. */
  origin: string;
  reader: ListReader;
  revision: string | undefined;
  matches: MatchWhole;
  /** Of node-units that share one of these tenants. */
  samples: (tenants: readonly string[] | undefined) => Record<string, ResourceUsage>;
  answerBytesMax?: number;
}

/** A list whose rows are the JSON they go out as, each behind a comma. */
export interface WrittenList extends Omit<CallResult<"deployment.list">, "items"> {
  items: Buffer[];
}

export function listJson({ items: [first, ...others], ...rest }: WrittenList): Buffer {
  const head = Buffer.from(`${JSON.stringify(rest).slice(0, -1)},"items":[`);
  const rows = first ? [first.subarray(1), ...others] : [];
  return Buffer.concat([head, ...rows, Buffer.from("]}")]);
}

/** `unchanged`, what changed, or everything: whichever the named revision allows. */
export function answerList(options: ListOptions): WrittenList {
  const { log, origin, reader, revision, matches } = options;
  const key = { origin, profile: profileOf(reader) };
  const from = parseRevision(revision, key);
  const known = from && log.reaches(Math.max(from.position, from.began)) ? from.position : 0;
  const began = known > 0 ? from!.began : log.position();
  const resource_usage = needsSamples(log, reader) ? options.samples(reader.tenants) : {};
  if (known > 0 && known === log.position()) {
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
  for (const { position, id, row } of log.since(known)) {
    if (bytes > (options.answerBytesMax ?? ANSWER_BYTES_MAX)) {
      more = true;
      break;
    }
    reached = position;
    if (row && !serves(reader.tenants, row.tenant ?? DEFAULT_TENANT)) {
      if (known > 0) removed.push(id);
      bytes += 40;
      continue;
    }
    if (row?.skipped && row.isHidden && concerns(row, reader)) {
      skipped.push({ id, reason: row.skipped.message });
      bytes += row.skipped.message.length;
      continue;
    }
    if (!row || isNotForReader(row, reader)) {
      if (known > 0) removed.push(id);
      bytes += 40;
      continue;
    }
    const item = listed(row, reader, matches);
    items.push(item);
    bytes += item.length;
  }
  return {
    revision: more ? `${revisionAt(reached, key)}-${began}` : revisionAt(log.position(), key),
    answer: known > 0 ? "delta" : "full",
    items,
    removed,
    ...(skipped.length > 0 && { skipped }),
    ...(more && { more }),
    resource_usage,
  };
}

/** The revision a node would be at now; what `deployments_changed` names. */
export function currentRevision(log: ChangeLog, origin: string, reader: ListReader): string {
  return revisionAt(log.position(), { origin, profile: profileOf(reader) });
}

const shownToOthers = new WeakMap<DeploymentRow, Buffer>();

/**
 * `args` and `env` may hold secrets: only for whoever runs it, or takes it over next. To everybody else a row looks the
 * same, and is written once, as bytes: a thousand nodes that read a list of ten thousand rows at once took a minute of an
 * instance while each got its own JSON, and a third of that with strings that were only put together.
 */
function listed(row: DeploymentRow, reader: ListReader, matches: MatchWhole): Buffer {
  if (runs(row, reader, matches)) return written(renderDeployment(row));
  const known = shownToOthers.get(row) ?? written(withoutSecrets(row));
  shownToOthers.set(row, known);
  return known;
}

const written = (item: ListedDeployment): Buffer => Buffer.from(`,${JSON.stringify(item)}`);

function withoutSecrets(row: DeploymentRow): ListedDeployment {
  const { args, env, ...rest } = renderDeployment(row);
  const loader_env = [...loaderVariables(env)];
  return loader_env.length > 0 ? { ...rest, loader_env } : rest;
}

/** What a skipped row is to a node that does not run it: nothing to claim, to release or to take over. */
function isNotForReader(row: DeploymentRow, reader: ListReader): boolean {
  if (!row.skipped) return false;
  return row.isHidden === true || (isDeploymentType(row.type) && !concerns(row, reader));
}

const concerns = ({ type, enabled, address }: DeploymentRow, reader: ListReader): boolean =>
  enabled && (type === "daemon" || address === reader.address);

function runs(row: DeploymentRow, reader: ListReader, matches: MatchWhole): boolean {
  if (row.type === "daemon") return row.enabled && unfitness(row, reader, matches).length === 0;
  return (
    row.type === "deployment" &&
    (row.address === reader.address || row.moving_to === reader.address)
  );
}

/** A claim looks at samples only while there is something to claim, and two of the policies never do. */
function needsSamples(log: ChangeLog, { claim_policy }: ListReader): boolean {
  return log.count("unassigned") > 0 && !["deployment_count", "none"].includes(claim_policy);
}

interface RevisionKey {
  origin: string;
  profile: string;
}

const revisionAt = (position: number, { origin, profile }: RevisionKey): string =>
  `${origin}.${profile}.${position}`;

/**
 * `began` is where the log stood when a reader began to read in pieces. Removals forgotten before that are none
 * of its business; without it a reader in the middle of a long list would have to begin again for ever.
 */
function parseRevision(
  revision: string | undefined,
  { origin, profile }: RevisionKey,
): { position: number; began: number } | undefined {
  const prefix = `${origin}.${profile}.`;
  if (!revision?.startsWith(prefix)) return undefined;
  const [, position, began] =
    /^(\d{1,15})(?:-(\d{1,15}))?$/.exec(revision.slice(prefix.length)) ?? [];
  return position === undefined
    ? undefined
    : { position: Number(position), began: Number(began ?? position) };
}

/** A node that comes back with other labels or another trust may run other daemons: it reads everything anew. */
function profileOf({
  address,
  labels,
  trusted_package_regexp,
  custom_command,
  tenants = [DEFAULT_TENANT],
}: ListReader): string {
  const traits = JSON.stringify([
    address,
    Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)),
    trusted_package_regexp,
    custom_command,
    [...tenants].sort(),
  ]);
  return createHash("sha256").update(traits).digest("base64url").slice(0, 12);
}
