import { type Deployment, DeploymentView } from "@tenure/protocol";
import { Client } from "pg";

/** The deployments of a server, as a test asks for them. */
export interface DeploymentsOf {
  create(spec: Partial<Deployment> & { pin?: string }): Promise<DeploymentView>;
  list(): Promise<DeploymentView[]>;
  read(id: string): Promise<DeploymentView>;
  change(id: string, patch: Partial<Deployment>): Promise<DeploymentView>;
  why(id: string): Promise<string>;
}

export function deploymentsOf(url: string, token?: string): DeploymentsOf {
  async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
    const response = await fetch(`${url}/api/v1${path}`, {
      method,
      headers: {
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...(body !== undefined && { "content-type": "application/json" }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(20_000),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${JSON.stringify(answer)}`);
    return answer as T;
  }

  return {
    create: async (spec) => DeploymentView.parse(await ask("POST", "/deployments", spec)),
    async list() {
      const items: DeploymentView[] = [];
      let cursor: string | null = null;
      do {
        const next: string = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
        const page: { items: DeploymentView[]; next_cursor: string | null } = await ask(
          "GET",
          `/deployments?limit=500${next}`,
        );
        items.push(...page.items);
        cursor = page.next_cursor;
      } while (cursor !== null);
      return items;
    },
    read: (id) => ask("GET", `/deployments/${id}`),
    change: (id, patch) => ask("PATCH", `/deployments/${id}`, patch),
    why: async (id) => (await ask<{ answer: string }>("GET", `/deployments/${id}/why`)).answer,
  };
}

/** How many deployments each of these nodes owns, in their order. */
export function spreadOver(
  views: readonly DeploymentView[],
  addresses: readonly string[],
): number[] {
  return addresses.map(
    (address) =>
      views.filter((view) => view.type === "deployment" && view.address === address).length,
  );
}

/** The statuses that say "it runs", of the current term. */
export function runningStatuses(view: DeploymentView): DeploymentView["status"] {
  return view.status.filter(
    ({ state, generation, address }) =>
      state === "running" &&
      generation === view.generation &&
      (view.type === "daemon" || address === view.address),
  );
}

/** Every change of a deployment's address from now on, by the database itself. */
export async function auditAddresses(db: Client): Promise<() => Promise<AddressChange[]>> {
  await db.query(`
    drop table if exists address_audit;
    create table address_audit (id bigserial, deployment_id uuid, before text, after text);
    create or replace function audit_address() returns trigger language plpgsql as $$
    begin
      insert into address_audit (deployment_id, before, after) values (new.id, old.address, new.address);
      return new;
    end $$;
    drop trigger if exists audit_address on deployment;
    create trigger audit_address after update on deployment for each row
      when (old.address is distinct from new.address) execute function audit_address();
  `);
  return async () => {
    const { rows } = await db.query(
      "select deployment_id, before, after from address_audit order by id",
    );
    return rows as AddressChange[];
  };
}

export interface AddressChange {
  deployment_id: string;
  before: string;
  after: string;
}

/** A connection to the database for as long as the work takes. */
export async function withDatabase<T>(uri: string, work: (db: Client) => Promise<T>): Promise<T> {
  const db = new Client({ connectionString: uri });
  await db.connect();
  try {
    return await work(db);
  } finally {
    await db.end();
  }
}

/** Anything that costs nothing and ends at once when told to. */
export const SLEEPER = "exec sleep 100000";

export async function insertSleepers(
  db: Client,
  { count, address = "", prefix = "d" }: { count: number; address?: string; prefix?: string },
): Promise<void> {
  await db.query(
    `insert into deployment (id, name, command, address)
     select gen_random_uuid(), $3 || '-' || n, $4, $2 from generate_series(1, $1) as n`,
    [count, address, prefix, SLEEPER],
  );
}
