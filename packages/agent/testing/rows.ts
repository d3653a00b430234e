import type { ListedDeployment, Member } from "@tenure/protocol";

let rows = 0;

/** A free row of the deployment list, without arguments and environment. Ids ascend. */
export function row(changes: Partial<ListedDeployment> = {}): ListedDeployment {
  rows++;
  return {
    id: `00000000-0000-4000-8000-${String(rows).padStart(12, "0")}`,
    name: `d${rows}`,
    package_name: "web",
    package_version: "1.0.0",
    command: "",
    type: "deployment",
    address: "",
    enabled: true,
    selector: {},
    lost_after_ms: 0,
    generation: 0,
    revision: 1,
    moving_to: "",
    move_state: "",
    created_at: "2026-01-01T00:00:00.000Z",
    updated_at: "2026-01-01T00:00:00.000Z",
    ...changes,
  };
}

/** A node-unit that may run every package. */
export const member = (address: string, changes: Partial<Member> = {}): Member => ({
  address,
  name: address,
  instance_id: "i",
  epoch: 1,
  claim_policy: "deployment_count",
  labels: {},
  trusted_package_regexp: ".*",
  custom_command: false,
  draining: false,
  tags: { node_unit: true },
  joined_at: "2026-01-01T00:00:00.000Z",
  ...changes,
});
