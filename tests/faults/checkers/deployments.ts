import type { Findings } from "../workload.ts";
import { createViolations, groupBy, type Operation, type Violations } from "./operations.ts";
import type { Contact } from "./terms.ts";

export interface ClaimAsk {
  address: string;
  policy: string;
  candidates: { id: string; generation: number }[];
}
export interface Term {
  id: string;
  generation: number;
}
export interface ReleaseAsk {
  address: string;
  policy: string;
  addresses: string[];
}
export interface ReportAsk {
  address: string;
  deployment_id: string;
  generation: number;
  state: string;
}

export type Claim = Operation<ClaimAsk, Term>;
export type Release = Operation<ReleaseAsk, { released: Term[] }>;
export type Report = Operation<ReportAsk, unknown>;

export interface DeploymentStores {
  rows: { id: string; address: string; generation: number; type: string }[];
  /** What the statements themselves wrote down, in the order of their ids. */
  ledger: { event: string; id: string; address: string; generation: number }[];
}

export interface DeploymentHistory {
  claims: readonly Claim[];
  releases: readonly Release[];
  reports: readonly Report[];
  contacts: readonly Contact[];
  presenceTtlMs: number;
}

/** I1 and I2: one owner per term, terms only rise, nobody present is robbed, and policy `none` writes no address. */
export function checkDeployments(history: DeploymentHistory, stores: DeploymentStores): Findings {
  const violations = createViolations();
  const { claims, releases, reports } = history;
  const won = claims.filter(({ type }) => type === "ok");
  checkTermsOf(won, violations);
  checkSeen(won, violations);
  checkNone(claims, releases, stores, violations);
  checkReports(history, violations);
  const thefts = checkThefts(history, stores, violations);
  checkLedger(stores, violations);
  checkDurable(won, stores, violations);
  return {
    checked: claims.length + releases.length + reports.length,
    violations: violations.all,
    reached: {
      claims: won.length,
      releases: thefts.releases,
      conflicts: claims.filter(({ type, asked }) => type === "fail" && asked.policy !== "none")
        .length,
      stale_reports_refused: reports.filter(({ type }) => type === "fail").length,
      policy_none_refused: claims.filter(
        ({ type, asked }) => type === "fail" && asked.policy === "none",
      ).length,
    },
  };
}

/** A term is won once; between two claims of a row lies its release; and the order of terms is that of time. */
function checkTermsOf(won: readonly Claim[], violations: Violations): void {
  for (const [id, own] of groupBy(won, ({ answered }) => answered.id)) {
    const inOrder = [...own].sort((a, b) => a.answered.generation - b.answered.generation);
    let latestStart = Number.NEGATIVE_INFINITY;
    for (const [index, claim] of inOrder.entries()) {
      const { generation } = claim.answered;
      const before = inOrder[index - 1];
      if (before?.answered.generation === generation)
        violations.add(
          `${id}: generation ${generation} was claimed by ${before.asked.address} and ${claim.asked.address}`,
        );
      else if (before && generation - before.answered.generation < 2)
        violations.add(`${id}: generation ${generation} was claimed without a release before it`);
      if (claim.endNs < latestStart)
        violations.add(`${id}: generation ${generation} is higher than one that was claimed later`);
      latestStart = Math.max(latestStart, claim.startNs);
    }
  }
}

/** A row is claimed as it was seen: the term that was named, and the next one is won. */
function checkSeen(won: readonly Claim[], violations: Violations): void {
  for (const { asked, answered } of won) {
    const seen = asked.candidates.find(({ id }) => id === answered.id);
    if (seen?.generation !== answered.generation - 1)
      violations.add(
        `${answered.id}: ${asked.address} saw generation ${seen?.generation} and won ${answered.generation}`,
      );
  }
}

function checkNone(
  claims: readonly Claim[],
  releases: readonly Release[],
  { ledger }: DeploymentStores,
  violations: Violations,
): void {
  const passive = new Set(
    claims.filter(({ asked }) => asked.policy === "none").map(({ asked }) => asked.address),
  );
  for (const { asked, type } of claims)
    if (asked.policy === "none" && type === "ok")
      violations.add(`${asked.address} has the policy none and claimed`);
  for (const { asked, type, answered } of releases)
    if (asked.policy === "none" && type === "ok" && answered.released.length > 0)
      violations.add(`${asked.address} has the policy none and released`);
  for (const { event, id, address } of ledger)
    if (event === "deployment.claimed" && passive.has(address))
      violations.add(`${id} is written down as claimed by ${address}, whose policy is none`);
}

/** A report of a term that was over before it was sent must be refused. */
function checkReports(
  { claims, releases, reports }: DeploymentHistory,
  violations: Violations,
): void {
  const later: { id: string; generation: number; endNs: number }[] = [
    ...claims
      .filter(({ type }) => type === "ok")
      .map(({ answered, endNs }) => ({ ...answered, endNs })),
    ...releases
      .filter(({ type }) => type === "ok")
      .flatMap(({ answered, endNs }) => answered.released.map((term) => ({ ...term, endNs }))),
  ];
  const byId = groupBy(later, ({ id }) => id);
  for (const { asked, type, startNs } of reports) {
    if (type !== "ok") continue;
    const over = byId
      .get(asked.deployment_id)
      ?.find(({ generation, endNs }) => generation > asked.generation && endNs < startNs);
    if (over)
      violations.add(
        `${asked.deployment_id}: a report of generation ${asked.generation} was taken after generation ${over.generation} had begun`,
      );
  }
}

/**
 * A node that was renewed before a release and again after it, under one connection, was online throughout; and within
 * one TTL of the first renewal its presence cannot have run out in between. Taking from it was theft.
 */
function checkThefts(
  { releases, contacts, presenceTtlMs }: DeploymentHistory,
  { ledger }: DeploymentStores,
  violations: Violations,
): { releases: number } {
  const contactsOf = groupBy(contacts, ({ address }) => address);
  const robbed = new Map(
    ledger
      .filter(({ event }) => event === "deployment.released")
      .map(({ id, generation, address }) => [`${id} ${generation}`, address]),
  );
  let count = 0;
  for (const { type, answered, startNs, endNs } of releases) {
    if (type !== "ok") continue;
    for (const { id, generation } of answered.released) {
      count += 1;
      const victim = robbed.get(`${id} ${generation}`);
      const own = (victim && contactsOf.get(victim)) || [];
      const before = own.filter(({ heardNs }) => heardNs <= startNs).at(-1);
      if (!before || endNs - before.sentNs >= presenceTtlMs * 1e6) continue;
      const after = own.find(({ sentNs, epoch }) => sentNs > endNs && epoch === before.epoch);
      if (after)
        violations.add(
          `${id}: generation ${generation} was taken from ${victim}, which was present`,
        );
    }
  }
  return { releases: count };
}

/** The ledger of owners: along it generations rise, and a claim follows a release. */
function checkLedger({ rows, ledger }: DeploymentStores, violations: Violations): void {
  for (const [id, own] of groupBy(ledger, (entry) => entry.id)) {
    let owner = "";
    let generation = Number.NEGATIVE_INFINITY;
    for (const entry of own) {
      if (entry.generation <= generation)
        violations.add(
          `${id}: generation ${entry.generation} was written down after ${generation}`,
        );
      if (entry.event === "deployment.claimed" && owner !== "")
        violations.add(`${id}: ${entry.address} claimed it while ${owner} owned it`);
      if (entry.event === "deployment.released" && owner !== "" && owner !== entry.address)
        violations.add(`${id}: released from ${entry.address} while ${owner} owned it`);
      owner = entry.event === "deployment.released" ? "" : entry.address;
      generation = entry.generation;
    }
    const row = rows.find((each) => each.id === id);
    if (row && row.address !== owner)
      violations.add(
        `${id}: its row says ${row.address || "nobody"}, its ledger ${owner || "nobody"}`,
      );
  }
  for (const { id, type, address } of rows)
    if (type === "daemon" && address !== "") violations.add(`daemon ${id} has an owner`);
}

/** What was answered is in the ledger: no acknowledged claim is lost, also when Postgres crashed. */
function checkDurable(
  won: readonly Claim[],
  { ledger }: DeploymentStores,
  violations: Violations,
): void {
  const written = new Map(
    ledger.map(({ id, generation, address }) => [`${id} ${generation}`, address]),
  );
  for (const { asked, answered } of won) {
    const owner = written.get(`${answered.id} ${answered.generation}`);
    if (owner !== asked.address)
      violations.add(
        `${answered.id}: generation ${answered.generation} was answered to ${asked.address} and is ${owner ? `${owner}'s` : "lost"}`,
      );
  }
}
