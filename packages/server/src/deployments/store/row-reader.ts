import {
  cutText,
  DEFAULT_TENANT,
  DeploymentStatus,
  type FieldIssue,
  fieldIssues,
  Grants,
  isDeploymentType,
  RELEASE_ADDRESS_LENGTH_MAX,
  StoredDeployment,
} from "@tenure/protocol";
import * as z from "zod";
import type { DeploymentRow, StatusRow } from "../deployment-row.ts";

// SQL may write what the API refuses. Rows are read as JSON, which never fails as a whole, and each column is checked
// by itself: one bad row must not make a list unreadable.

/** More than the API takes in one request, and a frame with one row of all limits still reaches a node. */
const JSON_LENGTH_MAX = 1_048_576;
/** No address of a node is longer, and `deployment.release` takes no longer text. */
const ADDRESS_LENGTH_MAX = RELEASE_ADDRESS_LENGTH_MAX;
/** The name is the cursor of a list, with one more character. */
const NAME_LENGTH_MAX = 512;

/** As `to_jsonb` writes it. Not "infinity", and no year that RFC 3339 cannot write. */
const StoredTime = z
  .string()
  .regex(/^\d{4}-\d\d-\d\dT[\d:.]+[+-][\d:]+$/, "is no time that can be shown")
  .transform((text) => new Date(text));

function sized<T extends z.ZodType>(schema: T) {
  return schema.refine((value) => JSON.stringify(value).length <= JSON_LENGTH_MAX, "is too long");
}

const { shape } = StoredDeployment;
const Row = StoredDeployment.extend({
  name: shape.name.max(NAME_LENGTH_MAX),
  package_name: sized(shape.package_name),
  package_version: sized(shape.package_version),
  command: sized(shape.command),
  args: sized(shape.args),
  env: sized(shape.env),
  selector: sized(shape.selector),
  type: sized(shape.type),
  address: shape.address.max(ADDRESS_LENGTH_MAX),
  moving_to: z.string().max(ADDRESS_LENGTH_MAX),
  created_at: StoredTime,
  updated_at: StoredTime,
  secret_versions: z.record(z.string(), z.number()).catch({}).default({}),
  grants: sized(Grants.default({})),
});

/** The neutral values of columns that cannot be read; '' for columns not listed here. */
const NEUTRAL: Record<string, (raw: Record<string, unknown>) => unknown> = {
  name: (raw) => cutText(String(ownName(raw)), NAME_LENGTH_MAX),
  args: () => [],
  env: () => ({}),
  selector: () => ({}),
  grants: () => ({}),
  lost_after_ms: () => 0,
  generation: () => 0,
  revision: () => 0,
  created_at: () => EPOCH,
  updated_at: () => EPOCH,
};
const EPOCH = "1970-01-01T00:00:00.000+00:00";

/** The name within the tenant. In the column the tenant stands before it, unless that is `default`. */
function ownName({ name, tenant }: Record<string, unknown>): unknown {
  if (typeof name !== "string" || tenant === DEFAULT_TENANT) return name;
  const prefix = `${tenant} `;
  return name.startsWith(prefix) ? name.slice(prefix.length) : name;
}

/** Reads what `to_jsonb` made of a row of `deployment`. */
export function readDeploymentRow(raw: Record<string, unknown>): DeploymentRow {
  const parsed = Row.safeParse({ ...raw, name: ownName(raw) });
  if (parsed.success) return parsed.data;
  const { issues } = parsed.error;
  // The first issue of each column: a hundred bad variables are one bad `env`.
  const first = issues.filter(
    (issue, nth) => issues.findIndex(({ path }) => path[0] === issue.path[0]) === nth,
  );
  const neutral = first.map(({ path: [column] }) => [column, NEUTRAL[String(column)]?.(raw) ?? ""]);
  const invalid = fieldIssues(new z.ZodError(first));
  return { ...Row.parse({ ...raw, name: ownName(raw), ...Object.fromEntries(neutral) }), invalid };
}

const Specification = Row.pick({
  package_name: true,
  package_version: true,
  command: true,
  args: true,
  env: true,
  selector: true,
  grants: true,
  lost_after_ms: true,
}).extend({
  // Specifications written before there were types are deployments.
  type: shape.type.default("deployment").refine(isDeploymentType, "is no type"),
});
export type Specification = z.infer<typeof Specification>;

const SPECIFICATION_COLUMNS = new Set(Object.keys(Specification.shape));

/** Whether the specification of the row can be run. */
export function hasGoodSpecification({ type, invalid = [] }: DeploymentRow): boolean {
  if (!isDeploymentType(type)) return false;
  return !invalid.some(({ path }) => SPECIFICATION_COLUMNS.has(columnOf(path)));
}

export const isUnreadable = ({ invalid = [] }: DeploymentRow, column: string): boolean =>
  invalid.some(({ path }) => columnOf(path) === column);

const columnOf = (path: string): string => path.split(".", 1)[0]!;

/** Reads a former specification, or returns its problems. */
export function readSpecification(
  raw: unknown,
): { spec: Specification } | { spec?: never; invalid: FieldIssue[] } {
  const parsed = Specification.safeParse(raw);
  return parsed.success ? { spec: parsed.data } : { invalid: fieldIssues(parsed.error) };
}

const LAST_ERROR_LENGTH_MAX = 65_536;
const Status = DeploymentStatus.extend({
  address: z.string().max(ADDRESS_LENGTH_MAX),
  last_error: z.string().max(LAST_ERROR_LENGTH_MAX).nullable(),
  signal: z.string().max(ADDRESS_LENGTH_MAX).nullable(),
  spec_hash: z.string().max(ADDRESS_LENGTH_MAX).nullable(),
  started_at: StoredTime.nullable(),
  updated_at: StoredTime,
  lost_after_ms: z.number().nullish(),
});

/** Reads what `to_jsonb` made of a row of `deployment_status`. A bad one is skipped: its node writes the next. */
export function readStatusRow(
  raw: Record<string, unknown>,
): { row: StatusRow } | { row?: never; invalid: FieldIssue[] } {
  const parsed = Status.safeParse(raw);
  return parsed.success ? { row: parsed.data } : { invalid: fieldIssues(parsed.error) };
}
