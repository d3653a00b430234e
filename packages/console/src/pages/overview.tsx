import type { Stats } from "@tenure/protocol";
import type { ComponentChildren } from "preact";
import { cluster, membership, stats } from "../data.ts";
import { type Concern, concernsOf } from "../model/attention.ts";
import { Badge } from "../parts/badge.tsx";
import { Icon, ToneMark } from "../parts/icons.tsx";
import { Id } from "../parts/id.tsx";
import { Meter } from "../parts/meter.tsx";
import { Card, Page } from "../parts/page.tsx";
import { Failure, Loading, Stale } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { EventRows, recentEvents } from "./event-rows.tsx";
import { OverviewPlots, perSecond } from "./overview-plots.tsx";

/** Health of the fleet, with the most urgent problems first. */
export function OverviewPage() {
  const { value: numbers, error } = stats.use();
  const { value: view } = cluster.use();
  const { value: members } = membership.use();
  if (!numbers) {
    return (
      <Page title="Overview">
        {error ? <Failure error={error} retry={stats.refresh} /> : <Loading what="the fleet" />}
      </Page>
    );
  }
  const concerns = concernsOf({ cluster: view, membership: members, stats: numbers });
  return (
    <Page title="Overview" heading={<Headline concerns={concerns} isKnown={view !== undefined} />}>
      <Stale error={error} />
      {concerns.length > 0 && <Concerns of={concerns} />}
      <Tiles stats={numbers} />
      <OverviewPlots stats={numbers} hasOthers={(view?.instances.length ?? 1) > 1} />
      <div class="columns">
        <Card title="Recent events" side={<a href="/events">All events</a>} flush>
          <RecentEvents />
        </Card>
        <Card title="Stores and instances" side={<a href="/cluster">Cluster</a>} flush>
          {view ? <Health /> : <Loading what="the cluster" />}
        </Card>
      </div>
    </Page>
  );
}

function Headline({ concerns, isKnown }: { concerns: Concern[]; isKnown: boolean }) {
  if (!isKnown) return <>Overview</>;
  const tone = concerns.some((concern) => concern.tone === "bad")
    ? "bad"
    : concerns.length > 0
      ? "warn"
      : "good";
  const words =
    concerns.length === 0
      ? "All systems healthy"
      : `${concerns.length} ${concerns.length === 1 ? "problem needs" : "problems need"} attention`;
  return (
    <span class={`headline tone-${tone}`}>
      <ToneMark tone={tone} />
      <span class="headline-words">{words}</span>
    </span>
  );
}

function Concerns({ of }: { of: Concern[] }) {
  return (
    <ul class="concerns">
      {of.map(({ tone, title, detail, href }) => (
        <li key={title} class={`concern tone-${tone}`}>
          <ToneMark tone={tone} />
          <div class="concern-text">
            <a class="concern-title" href={href}>
              <Text>{title}</Text>
            </a>
            <p>
              <Text>{detail}</Text>
            </p>
          </div>
          <Icon name="chevron" />
        </li>
      ))}
    </ul>
  );
}

function Tiles({
  stats: { nodes, deployments, jobs, slots, sessions, signers, points, interval_ms },
}: {
  stats: Stats;
}) {
  const newest = points.at(-1);
  const rate = newest ? perSecond(sum(Object.values(newest.ended)), interval_ms) : 0;
  return (
    <div class="tiles">
      <Tile href="/nodes" name="Nodes online" value={nodes.online}>
        {nodes.draining > 0 && <span>{nodes.draining} draining</span>}
        {nodes.away > 0 && <span>{nodes.away} offline</span>}
        {nodes.draining + nodes.away === 0 && <span>none offline</span>}
      </Tile>
      <Tile
        href="/deployments"
        name="Deployments"
        value={deployments.running}
        of={deployments.enabled}
      >
        {deployments.failing > 0 && <span class="tone-bad">{deployments.failing} failing</span>}
        {deployments.unassigned > 0 && (
          <span class="tone-warn">{deployments.unassigned} unassigned</span>
        )}
        {deployments.failing + deployments.unassigned === 0 && <span>all running</span>}
      </Tile>
      <Tile href="/jobs" name="Jobs per second" value={rate}>
        <span>{jobs.waiting} waiting</span>
        <span>{jobs.running} running</span>
      </Tile>
      <Tile href="/nodes" name="Slots used" value={slots.reserved} of={slots.capacity}>
        <Meter
          value={slots.reserved}
          max={slots.capacity}
          label="Slots used"
          text={
            slots.capacity > 0
              ? `${Math.round((100 * slots.reserved) / slots.capacity)} %`
              : "no slots"
          }
        />
      </Tile>
      <Tile href="/sessions" name="Sessions" value={sessions.online}>
        <span>on this instance</span>
      </Tile>
      <Tile href="/signers" name="Nonces held" value={signers.held}>
        <span class={signers.quarantined > 0 ? "tone-warn" : ""}>
          {signers.quarantined} quarantined
        </span>
        <span>{signers.released} free</span>
      </Tile>
    </div>
  );
}

function Tile({
  href,
  name,
  value,
  of,
  children,
}: {
  href: string;
  name: string;
  value: number;
  of?: number;
  children: ComponentChildren;
}) {
  return (
    <a class="tile" href={href}>
      <span class="tile-name">{name}</span>
      <span class="tile-value">
        {value.toLocaleString("en")}
        {of !== undefined && <span class="tile-of"> / {of.toLocaleString("en")}</span>}
      </span>
      <span class="tile-note">{children}</span>
    </a>
  );
}

function RecentEvents() {
  const { value, error } = recentEvents.use();
  if (!value)
    return error ? (
      <Failure error={error} retry={recentEvents.refresh} />
    ) : (
      <Loading what="events" />
    );
  return <EventRows of={value.slice(0, 8)} />;
}

function Health() {
  const { value: view } = cluster.state.value;
  if (!view) return null;
  return (
    <ul class="plain-rows">
      {view.dependencies.map(({ name, kind, ok, reason }) => (
        <li key={name}>
          <Badge
            tone={ok ? "good" : "bad"}
            word={ok ? "answers" : "down"}
            {...(reason && { detail: reason })}
          />
          <span class="grow">
            {name} <span class="quiet">{kind === name ? "" : kind}</span>
          </span>
        </li>
      ))}
      {view.instances.map(({ instance_id, version, url }) => (
        <li key={instance_id}>
          <Badge tone="good" word="live" />
          <span class="grow">
            <Id of={instance_id} />{" "}
            {instance_id === view.instance_id && <span class="quiet">this instance</span>}
          </span>
          <span class="quiet wide-only">
            <Text>{url}</Text>
          </span>
          <span class="quiet number">{version}</span>
        </li>
      ))}
    </ul>
  );
}

const sum = (numbers: number[]): number => numbers.reduce((total, number) => total + number, 0);
