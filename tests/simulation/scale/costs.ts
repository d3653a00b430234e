/**
 * What things cost, for the queues of the simulation: the time that a fleet needs follows from these. Those of an
 * instance were measured with the server's own functions and rounded up; those of Postgres and of the network are assumed. docs/scale.md
 * says which is which.
 */
export interface Costs {
  /** CPU of an instance, in milliseconds. */
  listMs: number;
  listRowMs: number;
  /** The free rows of a demand, which are the same for all nodes but for those of the claim window. */
  listDemandMs: number;
  listOwnerMs: number;
  /** The oldest free rows are written for all nodes together, once after each change of the free rows. */
  oldestMs: number;
  callMs: number;
  tellMs: number;
  hostEventMs: number;
  memberMs: number;
  copyRowMs: number;
  /** Postgres, in milliseconds of one of its workers. */
  claimMs: number;
  releaseMs: number;
  releaseAddressMs: number;
  releaseRowMs: number;
  /** An instance reads what changed: four short statements. */
  copyLookMs: number;
  memberLookMs: number;
  readRowMs: number;
  postgresWorkers: number;
  /** One way between a node and its instance. */
  latencyMs: [min: number, max: number];
  /** How long after the death of a node its instance sees the socket close. */
  closeMs: [min: number, max: number];
  rowBytes: number;
  /** A question, or an answer without its rows. */
  frameBytes: number;
  hostEventBytes: number;
  candidateBytes: number;
  addressBytes: number;
  heldBytes: number;
  demandBytes: number;
  freeRowBytes: number;
  ownerBytes: number;
  namedOwnerBytes: number;
  /** The server cuts an answer: all that are open share these bytes, and each may have so many. */
  sharedBytes: number;
  answerBytes: [min: number, max: number];
}

export const COSTS: Costs = {
  listMs: 0.05,
  listRowMs: 0.01,
  listDemandMs: 0.1,
  listOwnerMs: 0.0007,
  oldestMs: 0.4,
  callMs: 0.1,
  tellMs: 0.01,
  hostEventMs: 0.005,
  memberMs: 0.005,
  copyRowMs: 0.01,
  claimMs: 1,
  releaseMs: 0.5,
  releaseAddressMs: 0.01,
  releaseRowMs: 0.05,
  copyLookMs: 0.8,
  memberLookMs: 0.3,
  readRowMs: 0.01,
  postgresWorkers: 4,
  latencyMs: [0.5, 3],
  closeMs: [1, 50],
  rowBytes: 375,
  frameBytes: 150,
  hostEventBytes: 420,
  candidateBytes: 64,
  addressBytes: 48,
  heldBytes: 39,
  demandBytes: 160,
  freeRowBytes: 97,
  ownerBytes: 12,
  namedOwnerBytes: 60,
  sharedBytes: 64 * 1_024 * 1_024,
  answerBytes: [32 * 1_024, 512 * 1_024],
};
