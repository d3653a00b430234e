import type { DeploymentView, LogLines, LogPage } from "@tenure/protocol";
import { readServerEvents } from "@tenure/sdk/sse";
import { useEffect, useMemo, useState } from "preact/hooks";
import { type ApiError, addressOf, call, errorOf } from "../../api.ts";
import { nodeName } from "../../data.ts";
import { shortId } from "../../model/ids.ts";
import { Icon } from "../../parts/icons.tsx";
import { CopyButton } from "../../parts/id.tsx";
import { LogView } from "../../parts/log-view.tsx";
import { Empty, Failure, Loading } from "../../parts/states.tsx";
import { asApiError } from "../../resource.ts";

const LINES_FIRST = 1_000;
/** Lines kept in the page; the file has the rest. */
const LINES_MAX = 20_000;

/** The log of a deployment on one node: the current file, followed live, or a rotated one. */
export function DeploymentLogs({ view }: { view: DeploymentView }) {
  const addresses = useMemo(() => addressesOf(view), [view]);
  const [node, setNode] = useState(addresses[0] ?? "");
  const [file, setFile] = useState(0);
  const [isFollowed, setFollowed] = useState(true);
  const [query, setQuery] = useState("");
  const [isOnlyFound, setOnlyFound] = useState(false);
  const [match, setMatch] = useState(0);
  const log = useLog({ id: view.id, node, file, isFollowed: isFollowed && file === 0 });
  const found = useMemo(() => findIn(log.lines, query), [log.lines, query]);
  const current = found.length > 0 ? match % found.length : 0;
  const step = (by: number) => setMatch((current + by + found.length) % Math.max(1, found.length));

  if (addresses.length === 0) {
    return (
      <Empty title="No log yet">
        <p>No node has run this deployment. Its log appears here when a node starts it.</p>
      </Empty>
    );
  }
  return (
    <div class="log">
      <div class="filters">
        <label class="search">
          <Icon name="search" />
          <span class="offscreen">Find in the log</span>
          <input
            type="search"
            placeholder="Find in the log"
            value={query}
            onInput={(event) => {
              setQuery(event.currentTarget.value);
              setMatch(0);
            }}
            onKeyDown={(event) => event.key === "Enter" && step(event.shiftKey ? -1 : 1)}
          />
        </label>
        {query !== "" && (
          <span class="found number" role="status">
            {found.length > 0 ? `${current + 1} of ${found.length}` : "not found"}
          </span>
        )}
        <label class="check">
          <input
            type="checkbox"
            checked={isOnlyFound}
            onChange={(event) => setOnlyFound(event.currentTarget.checked)}
          />{" "}
          only matches
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={isFollowed}
            disabled={file !== 0}
            onChange={(event) => setFollowed(event.currentTarget.checked)}
          />{" "}
          follow
        </label>
        <span class="grow" />
        {addresses.length > 1 && (
          <label class="select">
            <span class="offscreen">Node</span>
            <select value={node} onChange={(event) => setNode(event.currentTarget.value)}>
              {addresses.map((address) => (
                <option key={address} value={address}>
                  {nodeName(address) ?? shortId(address)}
                </option>
              ))}
            </select>
          </label>
        )}
        <label class="select">
          <span class="offscreen">File</span>
          <select
            value={String(file)}
            onChange={(event) => setFile(Number(event.currentTarget.value))}
          >
            {[...new Set([0, ...(log.files ?? []), file])]
              .sort((a, b) => a - b)
              .map((number) => (
                <option key={number} value={String(number)}>
                  {number === 0 ? "current file" : `rotated file ${number}`}
                </option>
              ))}
          </select>
        </label>
        <CopyButton text={log.lines.join("\n")} what="the log" />
      </div>
      {log.error ? (
        <Failure error={log.error} retry={log.retry} />
      ) : !log.isRead ? (
        <Loading what="the log" />
      ) : log.lines.length === 0 ? (
        <Empty title="The log is empty" />
      ) : (
        <LogView
          lines={isOnlyFound && query ? found.map((index) => log.lines[index]!) : log.lines}
          query={query}
          current={isOnlyFound ? current : found[current]}
          isFollowed={isFollowed && file === 0 && query === ""}
        />
      )}
    </div>
  );
}

/** The owner first, then the other nodes by their last report. */
function addressesOf(view: DeploymentView): string[] {
  const byRecency = [...view.status].sort((a, b) => (a.updated_at < b.updated_at ? 1 : -1));
  const all = [view.address, ...byRecency.map(({ address }) => address)];
  return [...new Set(all)].filter((address) => address !== "");
}

function findIn(lines: string[], query: string): number[] {
  if (query === "") return [];
  const wanted = query.toLowerCase();
  return lines.flatMap((line, index) => (line.toLowerCase().includes(wanted) ? [index] : []));
}

interface LogState {
  lines: string[];
  files: number[] | undefined;
  isRead: boolean;
  error: ApiError | undefined;
}

const UNREAD: LogState = { lines: [], files: undefined, isRead: false, error: undefined };

function useLog({
  id,
  node,
  file,
  isFollowed,
}: {
  id: string;
  node: string;
  file: number;
  isFollowed: boolean;
}) {
  const [state, setState] = useState<LogState>(UNREAD);
  const [tries, setTries] = useState(0);
  useEffect(() => {
    if (node === "") return undefined;
    const leaving = new AbortController();
    setState(UNREAD);
    const update = (changes: Partial<LogState>, more: string[] = []): void => {
      if (leaving.signal.aborted) return;
      setState((known) => ({
        ...known,
        isRead: true,
        ...changes,
        ...(more.length > 0 && { lines: [...known.lines, ...more].slice(-LINES_MAX) }),
      }));
    };
    read({ id, node, file, isFollowed, signal: leaving.signal, update }).catch((error) =>
      update({ error: asApiError(error) }),
    );
    return () => leaving.abort();
  }, [id, node, file, isFollowed, tries]);
  return { ...state, retry: () => setTries(tries + 1) };
}

async function read(options: {
  id: string;
  node: string;
  file: number;
  isFollowed: boolean;
  signal: AbortSignal;
  update: (changes: Partial<LogState>, more?: string[]) => void;
}): Promise<void> {
  const { id, node, file, isFollowed, signal, update } = options;
  const page: LogPage = await call("readLogs", {
    params: { id },
    query: { lines: LINES_FIRST, node, file },
  });
  update({ lines: page.lines, files: page.files });
  if (!isFollowed) return;
  const url = addressOf("readLogs", {
    params: { id },
    query: { node, file, from: page.next, follow: true },
  });
  const response = await fetch(url, { signal, credentials: "same-origin" });
  if (!response.ok || !response.body) throw await errorOf(response);
  for await (const events of readServerEvents(response.body)) {
    const chunks = events.map(({ data }): Partial<LogLines> => JSON.parse(data));
    update(
      {},
      chunks.flatMap(({ lines = [] }) => lines),
    );
  }
}
