import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ApiError } from "./api.ts";
import { me, restoreSession } from "./data.ts";
import { ClusterPage } from "./pages/cluster.tsx";
import { DeploymentPage } from "./pages/deployments/deployment.tsx";
import { DeploymentsPage } from "./pages/deployments/deployments.tsx";
import { EventsPage } from "./pages/events.tsx";
import { JobPage } from "./pages/job.tsx";
import { JobsPage } from "./pages/jobs.tsx";
import { NodePage } from "./pages/node.tsx";
import { NodesPage } from "./pages/nodes.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { SessionsPage } from "./pages/sessions.tsx";
import { SignInPage } from "./pages/sign-in.tsx";
import { SignerPage } from "./pages/signer.tsx";
import { SignersPage } from "./pages/signers.tsx";
import { TurnPage } from "./pages/turn.tsx";
import { Page } from "./parts/page.tsx";
import { Failure, Loading } from "./parts/states.tsx";
import { Toasts } from "./parts/toast.tsx";
import { asApiError } from "./resource.ts";
import { currentLocation, matchPath } from "./router.ts";
import { Shell } from "./shell.tsx";

/** The pages by path. The key remounts a page when its subject changes. */
const PAGES: [pattern: string, page: (params: Record<string, string>) => ComponentChildren][] = [
  ["/", () => <OverviewPage />],
  ["/nodes", () => <NodesPage />],
  ["/nodes/:id", ({ id = "" }) => <NodePage key={id} id={id} />],
  ["/deployments", () => <DeploymentsPage />],
  ["/deployments/:id", ({ id = "" }) => <DeploymentPage key={id} id={id} tab="" />],
  [
    "/deployments/:id/:tab",
    ({ id = "", tab = "" }) => <DeploymentPage key={id} id={id} tab={tab} />,
  ],
  ["/jobs", () => <JobsPage />],
  ["/jobs/:id", ({ id = "" }) => <JobPage key={id} id={id} />],
  ["/sessions", () => <SessionsPage />],
  ["/turns/:id", ({ id = "" }) => <TurnPage key={id} id={id} />],
  ["/signers", () => <SignersPage />],
  ["/signers/:signer", ({ signer = "" }) => <SignerPage key={signer} signer={signer} />],
  ["/cluster", () => <ClusterPage />],
  ["/events", () => <EventsPage />],
];

export function App() {
  const [error, setError] = useState<ApiError>();
  const start = () => {
    setError(undefined);
    restoreSession().catch((failure) => setError(asApiError(failure)));
  };
  useEffect(start, []);
  if (me.value === null) return <SignInPage />;
  if (me.value === undefined) {
    return (
      <div class="lonely">
        {error ? <Failure error={error} retry={start} /> : <Loading what="the console" />}
      </div>
    );
  }
  return (
    <>
      <Shell>{pageAt(currentLocation.value.path)}</Shell>
      <Toasts />
    </>
  );
}

function pageAt(path: string): ComponentChildren {
  for (const [pattern, page] of PAGES) {
    const params = matchPath(pattern, path);
    if (params) return page(params);
  }
  return (
    <Page title="Page not found">
      <p>
        There is no page at this address. <a href="/">Back to the overview</a>
      </p>
    </Page>
  );
}
