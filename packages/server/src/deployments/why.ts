import {
  ADDRESS_SELECTOR,
  type Brake,
  type DeploymentWhy,
  isDeploymentType,
  isLeaving,
  issueText,
  loadersOf,
  type MatchWhole,
  type Tags,
  type Unfitness,
  unfitness,
  type ViewState,
} from "@tenure/protocol";
import { patternProblem } from "@tenure/protocol/pattern";
import type { DeploymentRow, StatusRow } from "./deployment-row.ts";

/** A node-unit by its row, present or not. */
export interface WhyNode {
  address: string;
  name: string;
  present: boolean;
  online: boolean;
  left_at: Date | null;
  presence_expires_at: Date;
  draining: boolean;
  tags: Tags;
  claim_policy: string;
  labels: Record<string, string>;
  trusted_package_regexp: string;
  custom_command: boolean;
  tenants?: string[];
}

export interface WhyInput {
  row: DeploymentRow;
  nodes: readonly WhyNode[];
  statuses: readonly StatusRow[];
  view: ViewState;
  /** The brake of its tenant. Only operators of the fleet get the counts. */
  brake: Pick<Brake, "active"> & Partial<Pick<Brake, "lost" | "members">>;
  nowMs: number;
  matches: MatchWhole;
  /** What keeps it from getting the secrets that it refers to. */
  secretProblems?: readonly Reason[];
}

type Reason = DeploymentWhy["reasons"][number];

/**
 * Why a deployment is unassigned or not running, or that it runs. Always answers: the last reason is a plain
 * "nothing speaks against it, a node will take it at its next pass".
 */
export function explain(input: WhyInput): DeploymentWhy {
  const reasons = reasonsFor(input);
  return {
    deployment_id: input.row.id,
    answer: reasons[0]!.message,
    reasons,
  };
}

function reasonsFor(input: WhyInput): Reason[] {
  const { row } = input;
  if (row.invalid) return [invalidReason(row.invalid), ...keptReasons(input)];
  if (!isDeploymentType(row.type)) {
    const message = `its type ${JSON.stringify(row.type)} is neither "daemon" nor "deployment", so every node skips it`;
    return [{ code: "ERR_INVALID_TYPE", message }, ...keptReasons(input)];
  }
  if (!row.enabled) return [{ code: "disabled", message: "it is disabled" }];
  const { secretProblems = [] } = input;
  const reasons = placeReasons(input);
  // A child that runs already goes on.
  const goesOn = reasons.some(({ code }) => code === "running");
  return goesOn ? [...reasons, ...secretProblems] : [...secretProblems, ...reasons];
}

function placeReasons(input: WhyInput): Reason[] {
  const { row } = input;
  if (row.type === "daemon") return daemonReasons(input);
  return row.address === "" ? unassignedReasons(input) : assignedReasons(input);
}

// --- a row that node-units skip ---

function invalidReason(invalid: NonNullable<DeploymentRow["invalid"]>): Reason {
  const message = `its row cannot be read (${issueText(invalid)}), so every node leaves it as it is: not claimed, moved or taken from a lost node`;
  return { code: "ERR_INVALID_ROW", message };
}

/** Where a child of it goes on with the last specification that was good. */
function keptReasons({ row, nodes, statuses }: WhyInput): Reason[] {
  if (!row.enabled) return [{ code: "disabled", message: "it is disabled" }];
  return statuses.flatMap(({ address, state, generation }) => {
    const node = nodes.find((one) => one.address === address && one.present);
    if (!node || state !== "running" || generation !== row.generation) return [];
    const message = `it goes on at node ${nameOf(node)} with its last good specification`;
    return [{ code: "running", message, address }];
  });
}

// --- a daemon: one answer per node ---

function daemonReasons(input: WhyInput): Reason[] {
  const { row } = input;
  const stray: Reason[] =
    row.address === ""
      ? []
      : [
          {
            code: "ERR_DAEMON_ADDRESS_SET",
            message: `a daemon has no address; ${JSON.stringify(row.address)} is ignored`,
          },
        ];
  const present = input.nodes.filter((node) => node.present);
  if (present.length === 0) return [...stray, noNodes(input)];
  const perNode = present.map((node): Reason => {
    const [unfit] = unfitness(row, node, input.matches);
    if (unfit) return unfitReason(unfit, input, node);
    return stateReason(input, node.address, nameOf(node));
  });
  const running = perNode.filter(({ code }) => code === "running").length;
  const able = perNode.filter(({ code }) => !isUnfitness(code)).length;
  const summary: Reason =
    able === 0
      ? { code: "no_node_fits", message: "no node-unit that is present may run it" }
      : {
          code: running === able ? "running" : "not_everywhere",
          message: `it runs on ${running} of the ${able} node-units that may run it`,
        };
  return [summary, ...stray, ...perNode];
}

// --- a deployment without an owner ---

function unassignedReasons(input: WhyInput): Reason[] {
  const { row, nodes, matches } = input;
  const present = nodes.filter((node) => node.present);
  if (present.length === 0) return [noNodes(input)];
  const perNode = present.map((node): Reason | undefined => {
    const [unfit] = unfitness(row, node, matches);
    if (unfit) return unfitReason(unfit, input, node);
    return unwillingReason(node);
  });
  const against = perNode.filter((reason) => reason !== undefined);
  const able = present.length - against.length;
  if (able === 0) return [{ code: "no_node_fits", message: summaryOf(against, input) }, ...against];
  const waiting: Reason = {
    code: "waiting_for_claim",
    message: `${able} of ${present.length} node-units may take it; the least loaded does at its next pass`,
  };
  return [waiting, ...against];
}

function unwillingReason(node: WhyNode): Reason | undefined {
  const { address } = node;
  if (node.claim_policy === "none") {
    const message = `node ${nameOf(node)} has the claim policy none`;
    return { code: "policy_none", message, address };
  }
  if (node.draining)
    return { code: "node_draining", message: `node ${nameOf(node)} is draining`, address };
  if (isLeaving(node.tags))
    return { code: "node_leaving", message: `node ${nameOf(node)} is stopping`, address };
  return undefined;
}

function summaryOf(against: readonly Reason[], { row, nodes }: WhyInput): string {
  const pinned = row.selector.address;
  if (pinned !== undefined) {
    const node = nodes.find(({ address }) => address === pinned);
    if (!node) return `it is pinned to ${pinned}, a node that is not known`;
    if (!node.present) return `it is pinned to node ${nameOf(node)}, which is not there`;
  }
  if (against.length === 1) return against[0]!.message;
  const counted = new Map<string, number>();
  for (const { code } of against) counted.set(code, (counted.get(code) ?? 0) + 1);
  const parts = [...counted].map(([code, count]) => `${count} × ${code.replaceAll("_", " ")}`);
  return `none of the ${against.length} node-units that are present may take it (${parts.join(", ")})`;
}

// --- a deployment with an owner ---

function assignedReasons(input: WhyInput): Reason[] {
  const { row, nodes } = input;
  const owner = nodes.find(({ address }) => address === row.address);
  if (owner?.present)
    return [
      ...moveReasons(input),
      ...drainReasons(input, owner),
      ...pinReasons(input, owner),
      ...unfitOwnerReasons(input, owner),
      stateReason(input, owner.address, nameOf(owner)),
    ];
  return [lossReason(input, owner), ...holdReasons(input, owner)];
}

function lossReason({ row }: WhyInput, owner: WhyNode | undefined): Reason {
  const { address } = row;
  if (!owner)
    return {
      code: "owner_unknown",
      message: `it belongs to ${JSON.stringify(address)}, a node that is not known; the next pass of a node releases it`,
      address,
    };
  const how = owner.online ? "does not answer any more" : "left";
  return {
    code: "owner_lost",
    message: `its node ${nameOf(owner)} ${how}; the next pass of another node releases it`,
    address,
  };
}

/** What keeps a lost owner's row from being released now. */
function holdReasons(input: WhyInput, owner: WhyNode | undefined): Reason[] {
  const { view, brake, nodes, nowMs } = input;
  const held: Reason[] = [];
  if (brake.active) held.push({ code: "brake_active", message: brakeMessage(brake) });
  if (view === "settling")
    held.push({
      code: "view_settling",
      message: "the list of members may be incomplete for a moment, so nothing is released",
    });
  const waitMs = owner ? lostAtMs(owner) + lostAfterMs(input) - nowMs : 0;
  if (waitMs > 0)
    held.push({
      code: "lost_after_wait",
      message: `its lost_after_ms lets its node come back for another ${Math.ceil(waitMs / 1_000)} s`,
    });
  const others = nodes.filter(({ present }) => present);
  if (!others.some(({ claim_policy }) => claim_policy !== "none"))
    held.push({
      code: "nobody_releases",
      message:
        others.length === 0
          ? "no node-unit is present"
          : "every node-unit that is present has the claim policy none",
    });
  return held;
}

const brakeMessage = ({ lost, members }: WhyInput["brake"]): string =>
  lost === undefined || members === undefined
    ? "the mass-loss brake is on; an operator of the fleet releases it, or brings the lost node-units back"
    : `the mass-loss brake is on (${lost} of ${members} node-units were lost at once); release it, or bring them back`;

/** The row's, or the older one that its owner still goes by as far as is known. */
function lostAfterMs({ row, statuses }: WhyInput): number {
  const report = statuses.find(
    ({ address, generation }) => address === row.address && generation === row.generation,
  );
  return Math.max(row.lost_after_ms, report?.lost_after_ms ?? 0);
}

const lostAtMs = ({ online, left_at, presence_expires_at }: WhyNode): number =>
  (online ? presence_expires_at : (left_at ?? presence_expires_at)).getTime();

function moveReasons({ row, nodes }: WhyInput): Reason[] {
  if (row.moving_to === "") return [];
  const target = nodes.find(({ address }) => address === row.moving_to);
  const message = `it is being handed over to node ${target ? nameOf(target) : row.moving_to} (${row.move_state})`;
  return [{ code: "moving", message, address: row.moving_to }];
}

/** It is bound to another node, which has not begun to take it over. */
function pinReasons({ row, nodes }: WhyInput, owner: WhyNode): Reason[] {
  const pinned = row.selector[ADDRESS_SELECTOR];
  if (pinned === undefined || pinned === owner.address || row.moving_to !== "") return [];
  const target = nodes.find(({ address }) => address === pinned);
  const then = !target
    ? `to ${pinned}, a node that is not known`
    : target.present
      ? `to node ${nameOf(target)}, which takes it over next`
      : `to node ${nameOf(target)}, which is not there`;
  const message = `it is pinned ${then}; until then it stays at node ${nameOf(owner)}`;
  return [{ code: "pinned_elsewhere", message, address: pinned }];
}

/** Its node may not run it as it is now: who could. */
function unfitOwnerReasons(input: WhyInput, owner: WhyNode): Reason[] {
  const { row, nodes, matches } = input;
  const isPinnedAway = Object.hasOwn(row.selector, ADDRESS_SELECTOR);
  const [unfit] = unfitness(row, owner, matches);
  const isRefused = stateReason(input, owner.address, "").code === "refused";
  if (!unfit || !isRefused || isPinnedAway || owner.draining || row.moving_to !== "") return [];
  const others = nodes.filter(({ present, address }) => present && address !== owner.address);
  const able = others.filter((node) => takeOverReason(input, node) === undefined);
  const then =
    able.length > 0
      ? `${able.slice(0, NAMED_MAX).map(nameOf).join(", ")}${able.length > NAMED_MAX ? ` and ${able.length - NAMED_MAX} more` : ""} may run it; the next pass of such a node takes it from there`
      : "no other node-unit that is present may run it";
  const message = `${unfitReason(unfit, input, owner).message}; ${then}`;
  return [{ code: "owner_unfit", message, address: owner.address }];
}

const NAMED_MAX = 5;

/** The node is draining, and no other node has begun to take the deployment over. */
function drainReasons(input: WhyInput, owner: WhyNode): Reason[] {
  if (!owner.draining || input.row.moving_to !== "") return [];
  const others = input.nodes.filter(({ present, address }) => present && address !== owner.address);
  const against = others
    .map((node) => takeOverReason(input, node))
    .filter((reason) => reason !== undefined);
  const able = others.length - against.length;
  const then =
    able > 0
      ? `${able} of ${others.length} other node-units may take it over, one deployment at a time`
      : others.length === 0
        ? "no other node-unit is present"
        : summaryOf(against, input);
  const message = `its node ${nameOf(owner)} is draining; ${then}`;
  return [{ code: "owner_draining", message, address: owner.address }, ...against];
}

function takeOverReason(input: WhyInput, node: WhyNode): Reason | undefined {
  const [unfit] = unfitness(input.row, node, input.matches);
  if (unfit) return unfitReason(unfit, input, node);
  const unwilling = unwillingReason(node);
  if (unwilling) return unwilling;
  const report = stateReason(input, node.address, nameOf(node));
  return report.code === "failed" || report.code === "refused" ? report : undefined;
}

// --- what a node reports ---

function stateReason({ row, statuses }: WhyInput, address: string, node: string): Reason {
  const status = statuses.find(
    (one) => one.address === address && one.generation === row.generation,
  );
  if (!status) {
    const message = `node ${node} has not said anything of it yet`;
    return { code: "not_reported", message, address };
  }
  const detail = [
    status.exit_code !== null && `exit code ${status.exit_code}`,
    status.signal && `signal ${status.signal}`,
    status.restarts > 0 && `${status.restarts} restarts`,
    status.last_error,
  ].filter(Boolean);
  const state =
    status.state === "running" ? `it runs on node ${node}` : `node ${node} says ${status.state}`;
  const tail = detail.length > 0 ? ` (${detail.join("; ")})` : "";
  return { code: status.state, message: state + tail, address };
}

// --- words ---

const UNFIT: Record<Unfitness, (node: string, row: DeploymentRow) => string> = {
  tenant_not_served: (node, { tenant }) => `node ${node} does not serve the tenant ${tenant}`,
  selector_mismatch: (node, { selector }) =>
    `node ${node} does not carry the labels ${labelWords(selector)}`,
  version_not_exact: (_, { package_version }) =>
    `${JSON.stringify(package_version)} is no plain version, so no node installs it`,
  package_untrusted: (node, row) =>
    `node ${node} does not trust ${row.package_name}@${row.package_version}`,
  command_not_allowed: (node) => `node ${node} allows no custom command`,
  env_not_allowed: (node, row) =>
    `node ${node} allows no custom command, so env must not set ${loadersOf(row).join(", ")}: it changes which code is loaded`,
  secrets_not_supported: (node) =>
    `the agent of node ${node} is of a release that does not know secrets, which env refers to`,
  nothing_to_run: () => "it names neither a package nor a command",
};

const labelWords = (labels: Record<string, string>): string =>
  Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(", ");

function unfitReason(unfit: Unfitness, { row }: WhyInput, node: WhyNode): Reason {
  if (unfit === "package_untrusted" && patternProblem(node.trusted_package_regexp)) {
    const message = `node ${nameOf(node)} trusts no package: its TRUSTED_PACKAGE_REGEXP ${patternProblem(node.trusted_package_regexp)}`;
    return { code: PATTERN_UNREADABLE, message, address: node.address };
  }
  return { code: unfit, message: UNFIT[unfit](nameOf(node), row), address: node.address };
}

/** An agent of 0.1 accepts patterns that this version cannot read. */
const PATTERN_UNREADABLE = "pattern_unreadable";

const isUnfitness = (code: string): boolean =>
  Object.hasOwn(UNFIT, code) || code === PATTERN_UNREADABLE;

function noNodes({ view }: WhyInput): Reason {
  const message =
    view === "settling"
      ? "no node-unit is present yet; the list of members is still settling"
      : "no node-unit is present";
  return { code: "no_node_units", message };
}

const nameOf = ({ name, address }: WhyNode): string => name || address;
