import type { RecordedEvent } from "@tenure/testing/history";
import { groupBy } from "./operations.ts";

/** A start or a stop of one program of the run. */
export interface ProgramEvent {
  role: string;
  name: string;
  /** Which start of it, from 0. */
  start: number;
  /** 0 is the checkout, 1 the older commit. */
  version: number;
  /** How many versions it may run as. */
  of: number;
  /** Of a stop that ended. */
  code?: number | null;
  signal?: string | null;
}

/** One start of a program, until its stop or kill. */
export interface ProgramLife extends ProgramEvent {
  spawnedNs: number;
  /** Infinity when it never was. */
  readyNs: number;
  /** When SIGTERM or SIGKILL was sent; Infinity when it never was. */
  endedNs: number;
  /** Whether it was SIGTERM. */
  wasAsked: boolean;
  /** How that went; undefined when it did not end in time. */
  stop?: { tookMs: number; code: number | null; signal: string | null } | undefined;
}

const eventOf = ({ value }: RecordedEvent) => value as ProgramEvent;

export const startsOf = (events: readonly RecordedEvent[]): ProgramEvent[] =>
  events.filter(({ f, type }) => f === "start" && type === "ok").map(eventOf);

export function livesOfPrograms(events: readonly RecordedEvent[]): ProgramLife[] {
  const groups = groupBy(events, (event) => `${eventOf(event).name} ${eventOf(event).start}`);
  return [...groups.values()].map((own) => {
    const at = (f: string, ...types: string[]) =>
      own.find((event) => event.f === f && types.includes(event.type));
    const stopped = at("stop", "ok");
    const endedNs = at("stop", "invoke", "info")?.time ?? Number.POSITIVE_INFINITY;
    return {
      ...eventOf(own[0]!),
      spawnedNs: at("start", "invoke")?.time ?? 0,
      readyNs: at("start", "ok")?.time ?? Number.POSITIVE_INFINITY,
      endedNs,
      wasAsked: at("stop", "invoke") !== undefined,
      stop: stopped && {
        tookMs: (stopped.time - endedNs) / 1e6,
        code: eventOf(stopped).code ?? null,
        signal: eventOf(stopped).signal ?? null,
      },
    };
  });
}
