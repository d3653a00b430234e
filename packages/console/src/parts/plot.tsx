import { useEffect, useRef, useState } from "preact/hooks";
import type UPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme } from "../theme.ts";

export interface Line {
  label: string;
  /** A colour of the style sheet, such as `--plot-1`. */
  color: string;
  values: (number | null)[];
}

export interface PlotProps {
  title: string;
  /** Time of each value, in seconds. */
  times: number[];
  lines: Line[];
  format: (value: number) => string;
  /** Stacks the lines, so that the height is the sum. */
  stacked?: boolean;
  /** Shown over an empty plot. */
  empty: string;
}

const HEIGHT_PX = 168;
const SPAN_SECONDS = 15 * 60;

/** Lines over the last minutes. The legend shows the newest values, or those under the pointer. */
export function Plot({ title, times, lines, format, stacked = false, empty }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot>();
  const newest = useRef({ times, lines });
  const [pointed, setPointed] = useState<number>();
  const shape = `${lines.map(({ label }) => label).join()}|${theme.value}`;

  useEffect(() => {
    let end = (): void => {};
    let isLeft = false;
    void draw().then((made) => {
      if (isLeft) return made.destroy();
      plot.current = made;
      made.setData(dataOf(newest.current.times, newest.current.lines, stacked));
      const watcher = new ResizeObserver(([entry]) => {
        made.setSize({ width: Math.floor(entry!.contentRect.width), height: HEIGHT_PX });
      });
      watcher.observe(box.current!);
      end = () => {
        watcher.disconnect();
        made.destroy();
      };
    });
    return () => {
      isLeft = true;
      plot.current = undefined;
      end();
    };
  }, [shape]);
  useEffect(() => {
    newest.current = { times, lines };
    plot.current?.setData(dataOf(times, lines, stacked));
  }, [times, lines]);

  /** Loaded on demand: the library is a third of the bundle. */
  async function draw(): Promise<UPlot> {
    const { default: Library } = await import("uplot");
    const width = box.current?.clientWidth ?? 0;
    const onPoint = setPointed;
    return new Library(options({ lines, format, stacked, width, onPoint }), [[]], box.current!);
  }

  const index = pointed ?? times.length - 1;
  const isEmpty = lines.every(({ values }) => values.every((value) => !value));
  return (
    <figure class="plot">
      <figcaption>
        <span class="plot-title">{title}</span>
        <span class="legend">
          {lines.map(({ label, color, values }) => (
            <span key={label} class="legend-item">
              <span class={`swatch ${color.slice(2)}`} />
              {label}{" "}
              <span class="number">
                {typeof values[index] === "number" ? format(values[index]) : "–"}
              </span>
            </span>
          ))}
        </span>
      </figcaption>
      <div class="plot-box" role="img" aria-label={spoken(title, lines, format)} ref={box}>
        {isEmpty && <p class="plot-empty">{empty}</p>}
      </div>
    </figure>
  );
}

function spoken(title: string, lines: Line[], format: (value: number) => string): string {
  const newest = lines.map(({ label, values }) => {
    const value = values.at(-1);
    return `${label} ${typeof value === "number" ? format(value) : "none"}`;
  });
  return `${title}, newest: ${newest.join(", ")}`;
}

function dataOf(times: number[], lines: Line[], stacked: boolean): UPlot.AlignedData {
  if (!stacked) return [times, ...lines.map(({ values }) => values)];
  let sums: number[] = times.map(() => 0);
  const stacks = lines.map(({ values }) => {
    sums = sums.map((sum, index) => sum + (values[index] ?? 0));
    return sums;
  });
  // The tallest line is drawn first, below the others.
  return [times, ...stacks.reverse()];
}

function options({
  lines,
  format,
  stacked,
  width,
  onPoint,
}: Pick<PlotProps, "lines" | "format"> & {
  stacked: boolean;
  width: number;
  onPoint: (index: number | undefined) => void;
}): UPlot.Options {
  const drawn = stacked ? [...lines].reverse() : lines;
  const axis = {
    stroke: css("--text-3"),
    font: `11px ${css("--font-text")}`,
    grid: { stroke: css("--line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height: HEIGHT_PX,
    padding: [8, 18, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: "overview" }, drag: { x: false, y: false }, points: { show: false } },
    scales: {
      // Always the whole time span, even after a recent start.
      x: { range: (_, __, max) => [max - SPAN_SECONDS, max] },
      y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    axes: [
      {
        ...axis,
        size: 24,
        gap: 4,
        space: 70,
        values: (_, splits) => splits.map(hourMinute),
        grid: { show: false },
      },
      {
        ...axis,
        size: 46,
        gap: 6,
        space: 36,
        values: (_, splits) => splits.map((value) => format(value)),
      },
    ],
    series: [
      {},
      ...drawn.map(({ label, color }) => ({
        label,
        stroke: css(color),
        width: 1.5,
        points: { show: false },
        fill: css(stacked ? `${color}-solid` : `${color}-soft`),
        spanGaps: false,
      })),
    ],
    hooks: {
      setCursor: [
        ({ cursor }) =>
          onPoint(
            cursor.left !== undefined && cursor.left >= 0 ? (cursor.idx ?? undefined) : undefined,
          ),
      ],
    },
  };
}

const css = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function hourMinute(seconds: number): string {
  const date = new Date(seconds * 1_000);
  return `${String(date.getHours()).padStart(2, "0")}:${String(date.getMinutes()).padStart(2, "0")}`;
}
