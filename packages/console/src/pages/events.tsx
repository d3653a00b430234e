import type { EventRecord } from "@tenure/protocol";
import { useEffect, useMemo, useState } from "preact/hooks";
import { type ApiError, call } from "../api.ts";
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
import { asApiError } from "../resource.ts";
import { setQuery } from "../router.ts";
import { JsonBox } from "./job.tsx";

const PAGE_LIMIT = 100;
const EVENTS_MAX = 1_000;

interface Filter {
  event?: string;
  code?: string;
  subject?: string;
}

/** What happened to the fleet, newest first, as it happens. */
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
    <Page title="Events" sub="What happened to the fleet, newest first; kept for 30 days.">
      <Stale error={isRead ? error : undefined} />
      <Filters placeholder="Text, subject, code">
        <label class="select">
          <span class="offscreen">Event</span>
          <select
            value={event}
            onChange={(change) => setQuery({ event: change.currentTarget.value })}
          >
            <option value="">Every event</option>
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
        <Empty
          title={events.length === 0 ? "Nothing has happened yet" : "No event fits this filter"}
        />
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
            Show older ones
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
                About <Id of={subject} whole />{" "}
                <button
                  type="button"
                  class="button button-small"
                  onClick={() => setQuery({ subject })}
                >
                  Only this
                </button>{" "}
                {href && <a href={href}>Open it</a>}
              </>
            )}
          </p>
          <JsonBox value={details} />
        </div>
      </details>
    </li>
  );
}

interface Feed {
  events: EventRecord[];
  cursor: string | undefined;
  isRead: boolean;
  error: ApiError | undefined;
}

const UNREAD: Feed = { events: [], cursor: undefined, isRead: false, error: undefined };

function useEvents(filter: Filter) {
  const [feed, setFeed] = useState<Feed>(UNREAD);
  const [refresh, setRefresh] = useState<() => void>(() => () => {});
  const add = (more: EventRecord[], changes: Partial<Feed> = {}): void =>
    setFeed((known) => ({ ...known, ...changes, events: newestFirst([...known.events, ...more]) }));
  useEffect(() => {
    let isLeft = false;
    setFeed(UNREAD);
    const read = async (): Promise<void> => {
      try {
        const { items, next_cursor } = await call("listEvents", {
          query: { ...filter, limit: PAGE_LIMIT },
        });
        if (isLeft) return;
        setFeed((known) => ({
          isRead: true,
          error: undefined,
          cursor: known.isRead ? known.cursor : (next_cursor ?? undefined),
          events: newestFirst([...known.events, ...items]),
        }));
      } catch (error) {
        if (!isLeft) setFeed((known) => ({ ...known, error: asApiError(error) }));
      }
    };
    setRefresh(() => () => void read());
    const ends = [
      onConnect(() => void read()),
      onChange("events", ({ item }) => {
        if (fits(item as EventRecord, filter)) add([item as EventRecord]);
      }),
    ];
    void read();
    return () => {
      isLeft = true;
      for (const end of ends) end();
    };
  }, [filter]);
  const { cursor } = feed;
  const older =
    cursor === undefined || feed.events.length >= EVENTS_MAX
      ? undefined
      : async (): Promise<void> => {
          try {
            const page = await call("listEvents", {
              query: { ...filter, limit: PAGE_LIMIT, cursor },
            });
            add(page.items, { cursor: page.next_cursor ?? undefined });
          } catch (error) {
            setFeed((known) => ({ ...known, error: asApiError(error) }));
          }
        };
  return { ...feed, older, refresh };
}

function newestFirst(events: EventRecord[]): EventRecord[] {
  const all = new Map(events.map((event) => [event.id, event]));
  return [...all.values()].sort((a, b) => b.id - a.id).slice(0, EVENTS_MAX);
}

const fits = (event: EventRecord, filter: Filter): boolean =>
  (filter.event === undefined || filter.event === event.event) &&
  (filter.code === undefined || filter.code === event.code) &&
  (filter.subject === undefined || filter.subject === event.subject);

function matches({ event, message, subject, code }: EventRecord, query: string): boolean {
  return [event, message, subject, code].some((text) => text?.toLowerCase().includes(query));
}
