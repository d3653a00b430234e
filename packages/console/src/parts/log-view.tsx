import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Text } from "./text.tsx";

/** Same as in the style sheet. */
const LINE_PX = 19;
const MARGIN_LINES = 30;

/** Log lines; only the visible ones are rendered. */
export function LogView({
  lines,
  query,
  current,
  isFollowed,
}: {
  lines: string[];
  query: string;
  /** Line of the current match. */
  current: number | undefined;
  isFollowed: boolean;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [from, setFrom] = useState(0);
  const [height, setHeight] = useState(600);
  const first = Math.max(0, from - MARGIN_LINES);
  const shown = lines.slice(first, from + Math.ceil(height / LINE_PX) + MARGIN_LINES);

  useLayoutEffect(() => {
    const { current: element } = box;
    if (!element) return undefined;
    const watcher = new ResizeObserver(() => setHeight(element.clientHeight));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (isFollowed && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, isFollowed]);
  useEffect(() => {
    if (current !== undefined && query !== "")
      box.current?.scrollTo({ top: Math.max(0, current * LINE_PX - box.current.clientHeight / 2) });
  }, [current, query]);

  return (
    <div
      class="log-box"
      ref={box}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: makes it scrollable by keyboard
      tabIndex={0}
      role="log"
      aria-label="Log lines"
      aria-live="off"
      onScroll={(event) => setFrom(Math.floor(event.currentTarget.scrollTop / LINE_PX))}
    >
      <div class="log-lines" style={{ height: `${lines.length * LINE_PX}px` }}>
        <div class="log-shown" style={{ transform: `translateY(${first * LINE_PX}px)` }}>
          {shown.map((line, offset) => {
            const index = first + offset;
            return (
              <div
                key={index}
                class={index === current && query ? "log-line log-current" : "log-line"}
              >
                <span class="log-number" aria-hidden="true">
                  {index + 1}
                </span>
                <Marked line={line} query={query} />
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

function Marked({ line, query }: { line: string; query: string }) {
  const at = query === "" ? -1 : line.toLowerCase().indexOf(query.toLowerCase());
  if (at < 0) return <Text tabs>{line}</Text>;
  return (
    <>
      <Text tabs>{line.slice(0, at)}</Text>
      <mark>
        <Text tabs>{line.slice(at, at + query.length)}</Text>
      </mark>
      <Text tabs>{line.slice(at + query.length)}</Text>
    </>
  );
}
