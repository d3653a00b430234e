import type { DeploymentView } from "@tenure/protocol";
import { useEffect, useMemo, useState } from "preact/hooks";
import { type ApiError, call } from "../../api.ts";
import { deployments, isAdmin, isOnline, nodes } from "../../data.ts";
import { deploymentCondition } from "../../model/deployment.ts";
import { Badge } from "../../parts/badge.tsx";
import { Id } from "../../parts/id.tsx";
import { Page } from "../../parts/page.tsx";
import { Failure, Loading } from "../../parts/states.tsx";
import { Text } from "../../parts/text.tsx";
import { asApiError } from "../../resource.ts";
import { DeploymentActions } from "./deployment-actions.tsx";
import { DeploymentHistory } from "./deployment-history.tsx";
import { DeploymentLogs } from "./deployment-logs.tsx";
import { DeploymentSummary } from "./deployment-summary.tsx";

const BACK = { href: "/deployments", label: "Deployments" };
const TABS = [
  { tab: "", label: "Summary" },
  { tab: "logs", label: "Logs" },
  { tab: "history", label: "History" },
];

export function DeploymentPage({ id, tab }: { id: string; tab: string }) {
  nodes.use();
  const { view, error } = useDeployment(id);
  if (!view) {
    return (
      <Page title="Deployment" back={BACK}>
        {error ? <Failure error={error} /> : <Loading what="the deployment" />}
      </Page>
    );
  }
  return (
    <Page
      title={view.name}
      heading={<Text>{view.name}</Text>}
      back={BACK}
      sub={
        <>
          <Badge {...deploymentCondition(view, isOnline)} /> <Id of={view.id} />
        </>
      }
      actions={isAdmin() && <DeploymentActions view={view} />}
    >
      <nav class="tabs" aria-label="Parts of this page">
        {TABS.map(({ tab: name, label }) => (
          <a
            key={name}
            href={`/deployments/${encodeURIComponent(id)}${name && `/${name}`}`}
            aria-current={name === tab ? "page" : undefined}
          >
            {label}
          </a>
        ))}
      </nav>
      {tab === "logs" ? (
        <DeploymentLogs view={view} />
      ) : tab === "history" ? (
        <DeploymentHistory view={view} />
      ) : (
        <DeploymentSummary view={view} />
      )}
    </Page>
  );
}

/** From the list if it is loaded, otherwise read alone, so that a link does not wait for the list. */
function useDeployment(id: string): {
  view: DeploymentView | undefined;
  error: ApiError | undefined;
} {
  const { version } = deployments.use();
  const [found, setFound] = useState<string>();
  const [error, setError] = useState<ApiError>();
  useEffect(() => {
    call("readDeployment", { params: { id } }).then(
      (view) => {
        deployments.put(view);
        setFound(view.id);
      },
      (failure) => setError(asApiError(failure)),
    );
  }, [id]);
  const view = useMemo(() => deployments.get(found ?? id), [version, found, id]);
  return { view, error };
}
