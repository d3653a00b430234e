import { type Signal, signal } from "@preact/signals";
import type { List, StreamItem } from "@tenure/protocol";
import { useEffect } from "preact/hooks";
import { ApiError } from "./api.ts";
import { onChange, onConnect, type Topic } from "./live.ts";

/** A value read from the server. After a failed read it keeps the previous value and has an error. */
export interface Loaded<T> {
  value: T | undefined;
  error: ApiError | undefined;
  /** Time of the last read, by the local clock. */
  readAtMs: number | undefined;
}

export interface Resource<T> {
  readonly state: Signal<Loaded<T>>;
  /** Returns the current value, and reads it while the calling component is mounted. */
  use(): Loaded<T>;
  refresh(): Promise<void>;
  /** Sets the value, for example from the response to an action. */
  set(value: T): void;
  forget(): void;
}

export const NOTHING = { value: undefined, error: undefined, readAtMs: undefined };

export interface ResourceOptions<T> {
  read: () => Promise<T>;
  /** Poll interval while mounted. Without it, the value is read on changes and on request. */
  everyMs?: number;
  /** Topics of the stream that trigger a read. */
  topics?: readonly Topic[];
  isAbout?: (item: StreamItem) => boolean;
}

/** Shortest interval between two reads that changes trigger. */
const REREAD_MIN_MS = 1_000;

export function createResource<T>(options: ResourceOptions<T>): Resource<T> {
  const state = signal<Loaded<T>>(NOTHING);
  let users = 0;
  let end = (): void => {};
  const refresh = oneAtATime(read);
  const reread = throttle(REREAD_MIN_MS, () => void refresh());

  async function read(): Promise<void> {
    try {
      set(await options.read());
    } catch (error) {
      state.value = { ...state.value, error: asApiError(error) };
    }
  }

  function set(value: T): void {
    state.value = { value, error: undefined, readAtMs: Date.now() };
  }

  const isSeen = (): boolean => document.visibilityState === "visible";

  function begin(): () => void {
    const receive = (item: StreamItem): void => {
      if (options.isAbout?.(item) ?? true) reread();
    };
    const timer = options.everyMs && setInterval(() => isSeen() && void refresh(), options.everyMs);
    const ends = (options.topics ?? []).map((topic) => onChange(topic, receive));
    ends.push(onConnect(() => void refresh()));
    void refresh();
    return () => {
      clearInterval(timer);
      for (const end of ends) end();
    };
  }

  function hold(): () => void {
    users += 1;
    if (users === 1) end = begin();
    return () => {
      users -= 1;
      if (users === 0) end();
    };
  }

  return {
    state,
    refresh,
    set,
    use() {
      useEffect(hold, [hold]);
      return state.value;
    },
    forget() {
      state.value = NOTHING;
    },
  };
}

export interface Rows<T> {
  /** The same map for the life of the page; `version` changes with its content. */
  rows: ReadonlyMap<string, T>;
  version: number;
  isComplete: boolean;
  error: ApiError | undefined;
  readAtMs: number | undefined;
}

export interface Collection<T> {
  readonly state: Signal<Rows<T>>;
  use(): Rows<T>;
  get(id: string): T | undefined;
  put(item: T): void;
  remove(id: string): void;
  refresh(): Promise<void>;
  forget(): void;
}

export interface CollectionOptions<T> {
  topic: Topic;
  keyOf: (item: T) => string;
  page: (cursor: string | undefined) => Promise<List<T>>;
  /** Reads one row, for topics whose items carry only an id. */
  readOne?: (id: string) => Promise<T>;
}

/** Changes are collected for this long before a redraw. */
const DRAW_MS = 500;
/** Above this number of changes, reading the whole list is cheaper. */
const READ_ONE_MAX = 20;
const READ_ALL_MIN_MS = 5_000;

/** A whole list: read once page by page, then updated by the stream. */
export function createCollection<T>(options: CollectionOptions<T>): Collection<T> {
  const rows = new Map<string, T>();
  const state = signal<Rows<T>>({ ...empty(rows) });
  let users = 0;
  let isRead = false;
  // Responses may arrive in any order. A response to an older request than the shown data is dropped.
  let moment = 0;
  const shownAsOf = new Map<string, number>();
  const refresh = oneAtATime(readAll);
  const changedIds = new Set<string>();
  const draw = throttle(DRAW_MS, () => {
    state.value = { ...state.value, version: state.value.version + 1 };
  });
  const readTold = throttle(REREAD_MIN_MS, () => void readChanged());
  const readAllSoon = throttle(READ_ALL_MIN_MS, () => void refresh());

  function readSoon(id: string): void {
    changedIds.add(id);
    readTold();
  }

  function show(id: string, item: T | undefined, asOf = ++moment): void {
    if ((shownAsOf.get(id) ?? 0) > asOf) return;
    shownAsOf.set(id, asOf);
    if (item === undefined) rows.delete(id);
    else rows.set(id, item);
  }

  async function readAll(): Promise<void> {
    isRead = true;
    const began = ++moment;
    const seen = new Set<string>();
    try {
      let cursor: string | undefined;
      do {
        const asOf = ++moment;
        const page = await options.page(cursor);
        for (const item of page.items) {
          show(options.keyOf(item), item, asOf);
          seen.add(options.keyOf(item));
        }
        cursor = page.next_cursor ?? undefined;
        draw();
      } while (cursor !== undefined);
      for (const id of rows.keys()) if (!seen.has(id)) show(id, undefined, began);
      for (const id of shownAsOf.keys()) if (!rows.has(id)) shownAsOf.delete(id);
      update({ isComplete: true, error: undefined, readAtMs: Date.now() });
    } catch (error) {
      isRead = false;
      update({ error: asApiError(error) });
    }
  }

  function update(changes: Partial<Rows<T>>): void {
    state.value = { ...state.value, ...changes, version: state.value.version + 1 };
  }

  async function readChanged(): Promise<void> {
    const ids = [...changedIds];
    changedIds.clear();
    const { readOne } = options;
    if (!readOne || ids.length > READ_ONE_MAX) return readAllSoon();
    await Promise.all(
      ids.map(async (id) => {
        const asOf = ++moment;
        try {
          show(id, await readOne(id), asOf);
        } catch (error) {
          if (asApiError(error).status === 404) show(id, undefined, asOf);
        }
      }),
    );
    draw();
  }

  onChange(options.topic, ({ op, id, item }) => {
    if (!isRead) return;
    if (op === "changed" && item === undefined) return readSoon(id);
    show(id, op === "removed" ? undefined : (item as T));
    return draw();
  });
  onConnect(() => {
    if (users > 0) void refresh();
    else isRead = false;
  });

  return {
    state,
    refresh,
    get: (id) => rows.get(id),
    put(item) {
      const id = options.keyOf(item);
      show(id, item);
      update({});
      // The age of a response to an action is unknown.
      if (options.readOne) readSoon(id);
    },
    remove(id) {
      show(id, undefined);
      update({});
    },
    use() {
      useEffect(() => {
        users += 1;
        if (!isRead) void refresh();
        return () => {
          users -= 1;
        };
      }, []);
      return state.value;
    },
    forget() {
      rows.clear();
      shownAsOf.clear();
      isRead = false;
      state.value = empty(rows);
    },
  };
}

/** Single-flight with a trailing run: a call during a read waits for the next read, because the running one may be too old. */
function oneAtATime(read: () => Promise<void>): () => Promise<void> {
  let underWay: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  function begin(): Promise<void> {
    next = undefined;
    underWay = read().finally(() => {
      underWay = undefined;
    });
    return underWay;
  }
  return () => {
    if (!underWay) return begin();
    next ??= underWay.then(begin);
    return next;
  };
}

const empty = <T>(rows: ReadonlyMap<string, T>): Rows<T> => ({
  rows,
  version: 0,
  isComplete: false,
  error: undefined,
  readAtMs: undefined,
});

export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new ApiError({ status: 0, code: "INTERNAL", message });
}

/** Calls at once, then at most once per interval, and always once after the last call. */
export function throttle(intervalMs: number, act: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isWanted = false;
  function rest(): void {
    timer = undefined;
    if (!isWanted) return;
    isWanted = false;
    act();
    timer = setTimeout(rest, intervalMs);
  }
  return () => {
    if (timer !== undefined) {
      isWanted = true;
      return;
    }
    act();
    timer = setTimeout(rest, intervalMs);
  };
}
