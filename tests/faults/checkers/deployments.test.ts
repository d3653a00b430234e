import { describe, expect, test } from "vitest";
import {
  type Claim,
  checkDeployments,
  type DeploymentHistory,
  type DeploymentStores,
  type Release,
  type Report,
} from "./deployments.ts";

const MS = 1e6;
type Window = [number, number];
const at = ([start, end]: Window) => ({ startNs: start * MS, endNs: end * MS });

const claim = (
  address: string,
  generation: number,
  window: Window,
  policy = "deployment_count",
): Claim => ({
  process: address,
  f: "claim",
  asked: { address, policy, candidates: [{ id: "d", generation: generation - 1 }] },
  type: "ok",
  answered: { id: "d", generation },
  ...at(window),
});
const release = (generation: number, window: Window, policy = "deployment_count"): Release => ({
  process: "b",
  f: "release",
  asked: { address: "b", policy, addresses: ["a"] },
  type: "ok",
  answered: { released: [{ id: "d", generation }] },
  ...at(window),
});
const report = (address: string, generation: number, window: Window): Report => ({
  process: address,
  f: "report",
  asked: { address, deployment_id: "d", generation, state: "running" },
  type: "ok",
  answered: {},
  ...at(window),
});
const entry = (event: string, address: string, generation: number) => ({
  event: `deployment.${event}`,
  id: "d",
  address,
  generation,
});

const calm: DeploymentHistory = {
  claims: [claim("a", 1, [0, 10]), claim("b", 3, [200, 210])],
  releases: [release(2, [150, 160])],
  reports: [report("a", 1, [20, 30]), report("b", 3, [220, 230])],
  contacts: [{ address: "a", epoch: 1, sentNs: 15 * MS, heardNs: 18 * MS }],
  presenceTtlMs: 100,
};
const stores: DeploymentStores = {
  rows: [{ id: "d", address: "b", generation: 3, type: "deployment" }],
  ledger: [entry("claimed", "a", 1), entry("released", "a", 2), entry("claimed", "b", 3)],
};
const violationsOf = (
  changed: Partial<DeploymentHistory>,
  changedStores: Partial<DeploymentStores> = {},
) =>
  checkDeployments({ ...calm, ...changed }, { ...stores, ...changedStores }).violations.join("\n");

describe("I1, I2: the owners of deployments", () => {
  test("terms that have one owner each and follow a release pass", () => {
    expect(violationsOf({})).toBe("");
    expect(checkDeployments(calm, stores).reached).toMatchObject({ claims: 2, releases: 1 });
  });

  const cases: [string, Partial<DeploymentHistory>, Partial<DeploymentStores>, RegExp][] = [
    [
      "one term won twice",
      { claims: [...calm.claims, claim("c", 3, [200, 220])] },
      {},
      /generation 3 was claimed by b and c/,
    ],
    [
      "a claim without a release",
      { claims: [claim("a", 1, [0, 10]), claim("b", 2, [20, 30])] },
      {},
      /generation 2 was claimed without a release/,
    ],
    [
      "a term that contradicts time",
      { claims: [claim("a", 5, [0, 10]), claim("b", 3, [20, 30])] },
      {},
      /generation 5 is higher than one that was claimed later/,
    ],
    [
      "a claim of a node with policy none",
      { claims: [...calm.claims, claim("n", 5, [300, 310], "none")] },
      {},
      /n has the policy none and claimed/,
    ],
    [
      "a release of a node with policy none",
      { releases: [release(2, [150, 160], "none")] },
      {},
      /has the policy none and released/,
    ],
    [
      "a claim of policy none that only the ledger knows",
      { claims: [...calm.claims, { ...claim("b", 0, [300, 310], "none"), type: "info" }] },
      {},
      /claimed by b, whose policy is none/,
    ],
    [
      "a report of a term that is over",
      { reports: [report("a", 1, [170, 180])] },
      {},
      /a report of generation 1 was taken after generation 2 had begun/,
    ],
    [
      "a row claimed although it is not as it was seen",
      {
        claims: calm.claims.map((each) => ({
          ...each,
          asked: { ...each.asked, candidates: [{ id: "d", generation: 0 }] },
        })),
      },
      {},
      /b saw generation 0 and won 3/,
    ],
    [
      "a theft from a node that was present",
      {
        contacts: [
          { address: "a", epoch: 1, sentNs: 100 * MS, heardNs: 105 * MS },
          { address: "a", epoch: 1, sentNs: 190 * MS, heardNs: 195 * MS },
        ],
      },
      {},
      /generation 2 was taken from a, which was present/,
    ],
    [
      "a claim of an owned row",
      {},
      { ledger: [entry("claimed", "a", 1), entry("claimed", "b", 3)] },
      /b claimed it while a owned it/,
    ],
    [
      "a release from somebody else",
      {},
      { ledger: [entry("claimed", "a", 1), entry("released", "c", 2), entry("claimed", "b", 3)] },
      /released from c while a owned it/,
    ],
    [
      "a generation that falls",
      {},
      { ledger: [entry("claimed", "a", 1), entry("released", "a", 4), entry("claimed", "b", 3)] },
      /generation 3 was written down after 4/,
    ],
    [
      "a row that is not its ledger's",
      {},
      { rows: [{ id: "d", address: "a", generation: 3, type: "deployment" }] },
      /its row says a, its ledger b/,
    ],
    [
      "an answered claim that is lost",
      {},
      { ledger: stores.ledger.slice(0, 2), rows: [] },
      /generation 3 was answered to b and is lost/,
    ],
    [
      "a daemon with an owner",
      {},
      { rows: [...stores.rows, { id: "e", address: "a", generation: 1, type: "daemon" }] },
      /daemon e has an owner/,
    ],
  ];
  test.for(cases)("catch %s", ([, changed, changedStores, sentence]) => {
    expect(violationsOf(changed, changedStores)).toMatch(sentence);
  });

  test("allow a loss that lasted longer than the presence", () => {
    const contacts = [
      { address: "a", epoch: 1, sentNs: 15 * MS, heardNs: 18 * MS },
      { address: "a", epoch: 1, sentNs: 190 * MS, heardNs: 195 * MS },
    ];
    expect(violationsOf({ contacts })).toBe("");
  });
});
