import type { EventRecord } from "@tenure/protocol";
import { call } from "../api.ts";
import { onChange } from "../live.ts";
import { eventHref, eventTone } from "../model/event.ts";
import { ToneMark } from "../parts/icons.tsx";
import { Empty } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Time } from "../parts/time.tsx";
import { createResource } from "../resource.ts";

const RECENT_MAX = 12;

export const recentEvents = createResource({
  read: async () => (await call("listEvents", { query: { limit: RECENT_MAX } })).items,
});
onChange("events", ({ item }) => {
  const event = item as EventRecord;
  const known = recentEvents.state.value.value;
  if (!known || known.some(({ id }) => id === event.id)) return;
  recentEvents.set([event, ...known].sort((a, b) => b.id - a.id).slice(0, RECENT_MAX));
});

/** Events in short form: message, link and time. */
export function EventRows({ of }: { of: EventRecord[] }) {
  if (of.length === 0) return <Empty title="No events yet" />;
  return (
    <ul class="plain-rows event-rows">
      {of.map((event) => (
        <li key={event.id}>
          <ToneMark tone={eventTone(event)} />
          <EventMessage event={event} />
          <span class="quiet number">
            <Time at={event.at} />
          </span>
        </li>
      ))}
    </ul>
  );
}

export function EventMessage({ event }: { event: EventRecord }) {
  const href = eventHref(event);
  const text = <Text>{event.message}</Text>;
  return <span class="grow event-text">{href ? <a href={href}>{text}</a> : text}</span>;
}
