import type { Route } from "./http.ts";
import { ACCESS_ROUTES, CLUSTER_ROUTES, OUTER_ROUTES } from "./routes/cluster.ts";
import { DEPLOYMENT_ROUTES } from "./routes/deployments.ts";
import { JOB_ROUTES } from "./routes/jobs.ts";
import { NODE_ROUTES } from "./routes/nodes.ts";
import { SECRET_ROUTES } from "./routes/secrets.ts";
import { SIGNER_ROUTES } from "./routes/signers.ts";
import { TOKEN_ROUTES } from "./routes/tokens.ts";

/** Every HTTP route with who may call it. `docs/protocol.md` lists the same; a test compares them. */
export const ROUTES = {
  ...DEPLOYMENT_ROUTES,
  ...NODE_ROUTES,
  ...JOB_ROUTES,
  ...SIGNER_ROUTES,
  ...TOKEN_ROUTES,
  ...SECRET_ROUTES,
  ...CLUSTER_ROUTES,
  ...ACCESS_ROUTES,
  ...OUTER_ROUTES,
} as const;

export type RouteName = keyof typeof ROUTES;

/** The same, for code that walks them all. */
export const ROUTE_LIST: readonly (Route & { name: RouteName })[] = (
  Object.entries(ROUTES) as [RouteName, Route][]
).map(([name, route]) => ({ name, ...route }));
