import type { EventRecord } from "@tenure/protocol";
import { useMemo } from "preact/hooks";
import { call } from "../api.ts";
import { onChange, onConnect } from "../live.ts";
import { eventHref, eventTone } from "../model/event.ts";
import { Chip } from "../parts/badge.tsx";
import { Applied, chosen, Filters, sought } from "../parts/filter.tsx";
import { ToneMark } from "../parts/icons.tsx";
import { Id } from "../parts/id.tsx";
import { Page } from "../parts/page.tsx";
import { Empty, Failure, Loading, Stale } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Time } from "../parts/time.tsx";
import { setQuery } from "../router.ts";
import { type FeedOptions, useFeed } from "./feed.ts";
import { JsonBox } from "./job.tsx";

const PAGE_LIMIT = 100;
const EVENTS_MAX = 1_000;

interface Filter {
  event?: string;
  code?: string;
  subject?: string;
}

/** Events of the fleet, newest first, updated live. */
export function EventsPage() {
  const [event, code, subject] = [chosen("event"), chosen("code"), chosen("subject")];
  const filter = useMemo(
    (): Filter => ({ ...(event && { event }), ...(code && { code }), ...(subject && { subject }) }),
    [event, code, subject],
  );
  const { events, isRead, error, older, refresh } = useEvents(filter);
  const query = sought();
  const shown = useMemo(() => events.filter((one) => matches(one, query)), [events, query]);
  const names = useMemo(
    () => [...new Set([...events.map((one) => one.event), event])].filter(Boolean).sort(),
    [events, event],
  );
  return (
    <Page title="Events" sub="Newest first. Events are kept for 30 days.">
      <Stale error={isRead ? error : undefined} />
      <Filters placeholder="Text, subject, code">
        <label class="select">
          <span class="offscreen">Event</span>
          <select
            value={event}
            onChange={(change) => setQuery({ event: change.currentTarget.value })}
          >
            <option value="">All events</option>
            {names.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <Applied name="subject" />
        <Applied name="code" />
      </Filters>
      {!isRead ? (
        error ? (
          <Failure error={error} retry={refresh} />
        ) : (
          <Loading what="events" />
        )
      ) : shown.length === 0 ? (
        <Empty title={events.length === 0 ? "No events yet" : "No event matches this filter"} />
      ) : (
        <ul class="events card card-flush">
          {shown.map((one) => (
            <EventItem key={one.id} event={one} />
          ))}
        </ul>
      )}
      {older && (
        <p class="more">
          <button type="button" class="button" onClick={older}>
            Show older events
          </button>
        </p>
      )}
    </Page>
  );
}

function EventItem({ event }: { event: EventRecord }) {
  const { subject, code, details } = event;
  const href = eventHref(event);
  return (
    <li>
      <details>
        <summary>
          <ToneMark tone={eventTone(event)} />
          <span class="event-name mono">
            <Text>{event.event}</Text>
          </span>
          <span class="grow event-text">
            <Text>{event.message}</Text>
          </span>
          {code && <Chip>{code}</Chip>}
          <span class="quiet number event-time">
            <Time at={event.at} />
          </span>
        </summary>
        <div class="event-details">
          <p>
            {subject && (
              <>
                Subject <Id of={subject} whole />{" "}
                <button
                  type="button"
                  class="button button-small"
                  onClick={() => setQuery({ subject })}
                >
                  Filter by this
                </button>{" "}
                {href && <a href={href}>Open</a>}
              </>
            )}
          </p>
          <JsonBox value={details} />
        </div>
      </details>
    </li>
  );
}

function useEvents(filter: Filter) {
  const options = useMemo(() => optionsOf(filter), [filter]);
  const { items: events, ...feed } = useFeed(options);
  return { ...feed, events };
}

const optionsOf = (filter: Filter): FeedOptions<EventRecord> => ({
  readPage: (cursor) => call("listEvents", { query: { ...filter, limit: PAGE_LIMIT, cursor } }),
  mergeFirst: newestFirst,
  merge: newestFirst,
  itemsMax: EVENTS_MAX,
  start(read, add) {
    const ends = [
      onConnect(read),
      onChange("events", ({ item }) => {
        if (fits(item as EventRecord, filter)) add([item as EventRecord]);
      }),
    ];
    read();
    const stop = (): void => {
      for (const end of ends) end();
    };
    return { refresh: read, stop };
  },
});

function newestFirst(...lists: EventRecord[][]): EventRecord[] {
  const all = new Map(lists.flat().map((event) => [event.id, event]));
  return [...all.values()].sort((a, b) => b.id - a.id).slice(0, EVENTS_MAX);
}

const fits = (event: EventRecord, filter: Filter): boolean =>
  (filter.event === undefined || filter.event === event.event) &&
  (filter.code === undefined || filter.code === event.code) &&
  (filter.subject === undefined || filter.subject === event.subject);

function matches({ event, message, subject, code }: EventRecord, query: string): boolean {
  return [event, message, subject, code].some((text) => text?.toLowerCase().includes(query));
}
