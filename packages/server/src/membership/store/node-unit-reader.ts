import {
  ClaimPolicyName,
  type FieldIssue,
  fieldIssues,
  InstanceId,
  Tags,
  Tenants,
} from "@tenure/protocol";
import * as z from "zod";

// SQL may write what no instance does. One bad row must not make the list of members unreadable for every node.

const Traits = z.object({
  labels: z.record(z.string(), z.string()),
  tags: Tags,
  claim_policy: ClaimPolicyName,
  instance_id: InstanceId,
  tenants: Tenants.optional(),
});
type Traits = z.infer<typeof Traits>;

/** A node whose traits cannot be read carries no label, claims nothing and serves no tenant. */
const NEUTRAL: Traits = {
  labels: {},
  tags: { node_unit: true },
  claim_policy: "none",
  instance_id: "unknown",
  tenants: [],
};

/** The row, with neutral values for what cannot be read, and `invalid` naming that. */
export function soundUnit<T extends Traits>(row: T): T & { invalid?: FieldIssue[] } {
  const parsed = Traits.safeParse(row);
  if (parsed.success) return row;
  const columns = new Set(parsed.error.issues.map(({ path }) => path[0] as keyof Traits));
  const neutral = Object.fromEntries([...columns].map((column) => [column, NEUTRAL[column]]));
  return { ...row, ...neutral, invalid: fieldIssues(parsed.error) };
}
