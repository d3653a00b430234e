/**
 * What things cost, for the queues of the simulation. Measured on the machine of docs/scale.md with the server's own
 * functions (`npm run simulate -- --measure`), and rounded up; the waits of a fleet follow from them.
 */
export interface Costs {
  /** CPU of an instance, in milliseconds. */
  listMs: number;
  listRowMs: number;
  callMs: number;
  tellMs: number;
  hostEventMs: number;
  lookMemberMs: number;
  /** Postgres, in milliseconds of one of its workers. */
  claimMs: number;
  statementMs: number;
  readRowMs: number;
  postgresWorkers: number;
  /** One way between a node and its instance. */
  latencyMs: [min: number, max: number];
  rowBytes: number;
  answerBytes: number;
  hostEventBytes: number;
  tellBytes: number;
  candidateBytes: number;
  pieceRows: number;
}

export const COSTS: Costs = {
  listMs: 0.02,
  listRowMs: 0.006,
  callMs: 0.1,
  tellMs: 0.005,
  hostEventMs: 0.005,
  lookMemberMs: 0.005,
  claimMs: 1,
  statementMs: 0.3,
  readRowMs: 0.01,
  postgresWorkers: 4,
  latencyMs: [0.5, 3],
  rowBytes: 390,
  answerBytes: 150,
  hostEventBytes: 420,
  tellBytes: 90,
  candidateBytes: 64,
  pieceRows: 1_340,
};
