import pg from "pg";

// The loop as the first design document writes it: every node-unit looks every 5 s, reads every row, frees those of
// nodes that are not there, and takes at most one. No wake-ups, no revisions, no second candidate. It is the
// peer of `deployments`: what one would run without the rest of Tenure.

const INTERVAL_MS = 5_000;

export interface SeedFleet {
  /** From now on this node is absent, as a killed one is. */
  lose(node: string): void;
  claims(): number;
  conflicts(): number;
  stop(): Promise<void>;
}

/** Node-units that start at moments spread over one interval, as processes of a fleet do. */
export function startSeedFleet(uri: string, nodes: readonly string[]): SeedFleet {
  const pool = new pg.Pool({ connectionString: uri, max: 10 });
  const online = new Set(nodes);
  const timers = new Map<string, NodeJS.Timeout>();
  const counted = { claims: 0, conflicts: 0 };
  let underWay: Promise<unknown> = Promise.resolve();

  async function pass(me: string): Promise<void> {
    const { rows } = await pool.query<{ id: string; address: string }>(
      "select id, address from deployment where enabled order by updated_at, created_at, id",
    );
    const lost = [...new Set(rows.map(({ address }) => address))].filter(
      (address) => address !== "" && !online.has(address),
    );
    if (lost.length > 0)
      await pool.query("update deployment set address = '' where enabled and address = any($1)", [
        lost,
      ]);
    const counts = new Map([...online].map((node) => [node, 0]));
    for (const { address } of rows)
      if (counts.has(address)) counts.set(address, counts.get(address)! + 1);
    if (counts.get(me) !== Math.min(...counts.values())) return;
    const candidate = rows.find(({ address }) => address === "");
    if (!candidate) return;
    const { rowCount } = await pool.query(
      "update deployment set address = $2 where id = $1 and address = ''",
      [candidate.id, me],
    );
    if (rowCount === 1) counted.claims += 1;
    else counted.conflicts += 1;
  }

  nodes.forEach((node, index) => {
    const firstMs = (INTERVAL_MS * (index + 1)) / nodes.length;
    const tick = (): void => {
      timers.set(node, setTimeout(tick, INTERVAL_MS));
      underWay = Promise.all([underWay, pass(node)]);
    };
    timers.set(node, setTimeout(tick, firstMs));
  });

  return {
    lose(node) {
      clearTimeout(timers.get(node));
      online.delete(node);
    },
    claims: () => counted.claims,
    conflicts: () => counted.conflicts,
    async stop() {
      for (const timer of timers.values()) clearTimeout(timer);
      await underWay;
      await pool.end();
    },
  };
}
