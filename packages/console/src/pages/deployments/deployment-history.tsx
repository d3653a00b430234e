import type { DeploymentRevision, DeploymentView } from "@tenure/protocol";
import { useEffect, useMemo } from "preact/hooks";
import { call } from "../../api.ts";
import { deployments } from "../../data.ts";
import { type Difference, differences } from "../../model/revision.ts";
import { Action } from "../../parts/action.tsx";
import { Card } from "../../parts/page.tsx";
import { Empty, Failure, Loading } from "../../parts/states.tsx";
import { Text } from "../../parts/text.tsx";
import { Time } from "../../parts/time.tsx";
import { createResource } from "../../resource.ts";
import { EventRows } from "../event-rows.tsx";
import { useEventsOf } from "../events-of.ts";

/** Revisions with their changes, and events. */
export function DeploymentHistory({ view }: { view: DeploymentView }) {
  const events = useEventsOf(view.id);
  const revisions = useMemo(
    () =>
      createResource({
        read: async () => (await call("listRevisions", { params: { id: view.id } })).items,
      }),
    [view.id],
  );
  const { value, error } = revisions.use();
  useEffect(() => void revisions.refresh(), [view.revision]);
  return (
    <div class="columns">
      <Card title="Revisions" flush>
        {value ? (
          <ol class="revisions">
            <Revision
              spec={view}
              next={undefined}
              previous={value[0]}
              isRead={value[0]?.revision === view.revision - 1 || view.revision === 1}
              view={view}
            />
            {value.map((spec, index) => (
              <Revision
                key={spec.revision}
                spec={spec}
                next={spec.replaced_at}
                previous={value[index + 1]}
                view={view}
              />
            ))}
          </ol>
        ) : error ? (
          <Failure error={error} retry={revisions.refresh} />
        ) : (
          <Loading what="revisions" />
        )}
      </Card>
      <Card title="Events" flush>
        {events ? (
          events.length > 0 ? (
            <EventRows of={events} />
          ) : (
            <Empty title="No events" />
          )
        ) : (
          <Loading what="events" />
        )}
      </Card>
    </div>
  );
}

type Spec = Pick<
  DeploymentRevision,
  | "revision"
  | "package_name"
  | "package_version"
  | "command"
  | "args"
  | "env"
  | "selector"
  | "lost_after_ms"
  | "type"
>;

function Revision({
  spec,
  next,
  previous,
  isRead = true,
  view,
}: {
  spec: Spec;
  next: string | undefined;
  previous: Spec | undefined;
  /** `false` while the previous revision is not loaded. */
  isRead?: boolean;
  view: DeploymentView;
}) {
  const changes = previous ? differences(previous, spec) : [];
  return (
    <li class="revision">
      <div class="revision-head">
        <strong class="number">Revision {spec.revision}</strong>
        {next === undefined ? (
          <span class="chip tone-good">current</span>
        ) : (
          <span class="quiet">
            until <Time at={next} />
          </span>
        )}
        <span class="grow" />
        {next !== undefined && (
          <Action
            label="Roll back"
            small
            title={`Roll ${view.name} back to revision ${spec.revision}?`}
            done={`${view.name} is rolled back to revision ${spec.revision}`}
            onDo={async () =>
              deployments.put(
                await call("rollbackDeployment", {
                  params: { id: view.id },
                  body: { revision: spec.revision },
                }),
              )
            }
          >
            <p>The old specification becomes a new revision. Changes:</p>
            <Changes of={differences(view, spec)} empty="none" />
          </Action>
        )}
      </div>
      {isRead ? (
        <Changes of={changes} empty={previous ? "no change" : "oldest kept revision"} />
      ) : (
        <Loading what="changes" />
      )}
    </li>
  );
}

function Changes({ of, empty }: { of: Difference[]; empty: string }) {
  if (of.length === 0) return <p class="quiet">{empty}</p>;
  return (
    <ul class="changes">
      {of.map(({ name, from, to }) => (
        <li key={name}>
          <span class="quiet">
            <Text>{name}</Text>
          </span>{" "}
          {from !== undefined && (
            <del>
              <Text>{from}</Text>
            </del>
          )}{" "}
          {to !== undefined && (
            <ins>
              <Text>{to}</Text>
            </ins>
          )}
        </li>
      ))}
    </ul>
  );
}
