import type { EventRecord } from "@tenure/protocol";
import { useEffect, useState } from "preact/hooks";
import { call } from "../api.ts";
import { onChange } from "../live.ts";

const SHOWN_MAX = 100;

type Listener = (event: EventRecord) => void;
const listeners = new Set<Listener>();
onChange("events", ({ item }) => {
  for (const listen of listeners) listen(item as EventRecord);
});

/** Events of one subject, newest first, updated live. `undefined` until they are read. */
export function useEventsOf(subject: string): EventRecord[] | undefined {
  const [events, setEvents] = useState<EventRecord[]>();
  useEffect(() => {
    const add = (more: EventRecord[]): void =>
      setEvents((known = []) => {
        const all = new Map([...known, ...more].map((event) => [event.id, event]));
        return [...all.values()].sort((a, b) => b.id - a.id).slice(0, SHOWN_MAX);
      });
    const receive: Listener = (event) => {
      if (event.subject === subject) add([event]);
    };
    listeners.add(receive);
    call("listEvents", { query: { subject, limit: SHOWN_MAX } }).then(
      ({ items }) => add(items),
      () => add([]),
    );
    return () => {
      listeners.delete(receive);
    };
  }, [subject]);
  return events;
}
