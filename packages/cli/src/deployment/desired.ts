import {
  ClientId,
  DeploymentCreate,
  type DeploymentView,
  fieldIssues,
  isExactVersion,
  notExact,
} from "@tenure/protocol";
import { parseAllDocuments } from "yaml";
import * as z from "zod";

/** One deployment of a file, identified by its name. */
export type Desired = DeploymentCreate & { name: string };

export interface Change {
  name: string;
  action: "create" | "update" | "none";
  /** Fields that differ, with the values of the file. */
  fields: Partial<DeploymentCreate>;
  before: DeploymentView | undefined;
}

const DEPLOYMENTS_MAX = 10_000;
// Strict, unlike the server: a misspelled field in a file would go unnoticed.
const Entry = z.strictObject({ ...DeploymentCreate.shape, name: ClientId });
const File = z.union([
  z.strictObject({ deployments: z.array(z.unknown()) }).transform((file) => file.deployments),
  z.array(z.unknown()),
  z.record(z.string(), z.unknown()).transform((one) => [one]),
]);

/** The deployments of a YAML or JSON text: a list, `deployments:` with a list, or one per document. */
export function parseDesired(text: string): Desired[] {
  const entries = parseAllDocuments(text).flatMap((document) => {
    const [error] = document.errors;
    if (error) throw new Error(error.message);
    const value: unknown = document.toJS({ maxAliasCount: 100 });
    return value === null ? [] : File.parse(value);
  });
  if (entries.length > DEPLOYMENTS_MAX)
    throw new Error(
      `the file has ${entries.length} deployments; at most ${DEPLOYMENTS_MAX} are allowed`,
    );
  const desired = entries.map((entry, index) => parseEntry(entry, index));
  const names = desired.map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new Error(`the file has two deployments named ${twice}`);
  return desired;
}

function parseEntry(entry: unknown, index: number): Desired {
  const parsed = Entry.safeParse(entry);
  if (parsed.success) return parsed.data as Desired;
  const named = (entry as { name?: unknown } | null)?.name;
  const place = typeof named === "string" ? named : `deployment ${index + 1}`;
  const issues = fieldIssues(parsed.error).map(({ path, message }) =>
    path ? `${path} ${message}` : message,
  );
  throw new Error(`${place}: ${issues.join("; ")}`);
}

/** Compares a deployment of the file with the existing one. Fields that the file omits are not changed. */
export function changeFor(desired: Desired, before: DeploymentView | undefined): Change {
  const { name } = desired;
  const { package_name, package_version } = { ...before, ...desired };
  // Checked here, before any deployment of the file is applied.
  const isNamed = desired.package_name !== undefined || desired.package_version !== undefined;
  if (isNamed && package_name && !isExactVersion(package_version ?? ""))
    throw new Error(`${name}: ${notExact(package_version)}`);
  if (!before) {
    if (!desired.package_name && !desired.command)
      throw new Error(`${name}: needs a package_name or a command`);
    return { name, action: "create", fields: desired, before };
  }
  const wanted = withPin(desired, before);
  const fields = Object.fromEntries(
    Object.entries(wanted).filter(
      ([field, value]) =>
        value !== undefined &&
        (isUnreadable(before, field) ||
          !isSame(value, presentValue(before, field as keyof Desired))),
    ),
  );
  return { name, action: Object.keys(fields).length === 0 ? "none" : "update", fields, before };
}

/** Keeps a pin that was set by hand when the file does not name one. */
function withPin(desired: Desired, before: DeploymentView): Desired {
  const pinned = before.selector.address;
  if (!desired.selector || desired.pin !== undefined || pinned === undefined) return desired;
  return { ...desired, selector: { ...desired.selector, address: pinned } };
}

/** An unreadable field is shown as an empty value, which could equal the value of the file. */
const isUnreadable = ({ invalid = [] }: DeploymentView, field: string): boolean =>
  invalid.some(({ path }) => path.split(".", 1)[0] === field);

function presentValue(before: DeploymentView, field: keyof Desired): unknown {
  if (field === "pin") return before.selector.address ?? null;
  if (field === "selector") return before.selector;
  return before[field];
}

function isSame(a: unknown, b: unknown): boolean {
  return JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));
}

const sorted = (value: unknown): unknown =>
  typeof value === "object" && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).sort(([x], [y]) => (x < y ? -1 : 1)))
    : value;

/** Fields whose change restarts the process. */
const RUN_FIELDS = ["package_name", "package_version", "command", "args", "env", "type"];

export const needsNewProcess = ({ fields }: Change): boolean =>
  Object.keys(fields).some((field) => RUN_FIELDS.includes(field));
