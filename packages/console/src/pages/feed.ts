import { useEffect, useState } from "preact/hooks";
import type { ApiError } from "../api.ts";
import { asApiError } from "../resource.ts";

export interface FeedOptions<T> {
  readPage: (cursor?: string) => Promise<{ items: T[]; next_cursor: string | null }>;
  /** Merges a new first page into the known items. */
  mergeFirst: (known: T[], page: T[]) => T[];
  /** Merges older or single items into the known ones. */
  merge: (known: T[], more: T[]) => T[];
  /** Number of items above which no older page is offered. */
  itemsMax: number;
  /** Subscribes to changes and starts the first read. */
  start: (read: () => void, add: (more: T[]) => void) => FeedSource;
}

export interface FeedSource {
  refresh: () => void;
  stop: () => void;
}

interface Feed<T> {
  items: T[];
  cursor: string | undefined;
  isRead: boolean;
  error: ApiError | undefined;
}

/** A list with the newest items first, kept current, with older pages on demand. Restarts when `options` changes. */
export function useFeed<T>(options: FeedOptions<T>) {
  const [feed, setFeed] = useState<Feed<T>>(unread);
  const [refresh, setRefresh] = useState<() => void>(() => () => {});
  const fail = (error: unknown): void =>
    setFeed((known) => ({ ...known, error: asApiError(error) }));
  useEffect(() => {
    let isLeft = false;
    setFeed(unread());
    const read = async (): Promise<void> => {
      try {
        const { items, next_cursor } = await options.readPage();
        if (isLeft) return;
        setFeed((known) => ({
          isRead: true,
          error: undefined,
          cursor: known.isRead ? known.cursor : (next_cursor ?? undefined),
          items: options.mergeFirst(known.items, items),
        }));
      } catch (error) {
        if (!isLeft) fail(error);
      }
    };
    const add = (more: T[]): void =>
      setFeed((known) => ({ ...known, items: options.merge(known.items, more) }));
    const source = options.start(() => void read(), add);
    setRefresh(() => source.refresh);
    return () => {
      isLeft = true;
      source.stop();
    };
  }, [options]);

  const { cursor } = feed;
  const older = async (): Promise<void> => {
    try {
      const page = await options.readPage(cursor);
      setFeed((known) => ({
        ...known,
        cursor: page.next_cursor ?? undefined,
        items: options.merge(known.items, page.items),
      }));
    } catch (error) {
      fail(error);
    }
  };
  const hasOlder = cursor !== undefined && feed.items.length < options.itemsMax;
  return { ...feed, older: hasOlder ? older : undefined, refresh };
}

const unread = <T>(): Feed<T> => ({
  items: [],
  cursor: undefined,
  isRead: false,
  error: undefined,
});
