import { type Deployment, DeploymentView } from "@tenure/protocol";

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
