// biome-ignore-all lint/a11y/useSemanticElements: the list is virtual, and rows of a table cannot be positioned
// biome-ignore-all lint/a11y/useFocusableInteractive: the links in the rows are focusable
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Icon } from "./icons.tsx";

export interface Column<T> {
  title: string;
  /** A grid track, such as `minmax(0, 2fr)` or `88px`. */
  width: string;
  cell: (row: T) => ComponentChildren;
  sort?: (row: T) => string | number;
  isNumber?: boolean;
  /** Position on a narrow screen. Hidden there by default. */
  narrow?: "title" | "side" | "line";
}

export interface ListProps<T> {
  label: string;
  columns: Column<T>[];
  rows: readonly T[];
  keyOf: (row: T) => string;
  /** Column to sort by initially; unsorted by default. */
  sortBy?: { column: number; down?: boolean };
  empty: ComponentChildren;
}

const NARROW = window.matchMedia("(max-width: 760px)");
const isNarrow = signal(NARROW.matches);
NARROW.addEventListener("change", () => {
  isNarrow.value = NARROW.matches;
});

/** Same as in the style sheet. A fixed height makes long lists cheap. */
const ROW_PX = { wide: 37, narrow: 61 };
const MARGIN_ROWS = 12;

interface Sort {
  column: number;
  down: boolean;
}

/** A virtual table: only visible rows are rendered. */
export function List<T>({ label, columns, rows, keyOf, sortBy, empty }: ListProps<T>) {
  const [sort, setSort] = useState<Sort | undefined>(
    sortBy && { column: sortBy.column, down: sortBy.down ?? false },
  );
  const sorted = useMemo(() => sortRows(rows, columns, sort), [rows, sort]);
  const rowPx = isNarrow.value ? ROW_PX.narrow : ROW_PX.wide;
  const body = useRef<HTMLDivElement>(null);
  const [from, to] = useWindow(body, sorted.length, rowPx);
  if (sorted.length === 0) return <div class="list">{empty}</div>;
  const tracks = columns.map(({ width }) => width).join(" ");

  return (
    <div
      class={isNarrow.value ? "list list-narrow" : "list"}
      role="table"
      aria-label={label}
      aria-rowcount={sorted.length + 1}
    >
      <div role="rowgroup" class="list-head-group">
        <div role="row" class="list-head" style={{ gridTemplateColumns: tracks }} aria-rowindex={1}>
          {columns.map((column, index) => (
            <Head key={column.title} column={column} index={index} sort={sort} onSort={setSort} />
          ))}
        </div>
      </div>
      <div
        role="rowgroup"
        ref={body}
        class="list-body"
        style={{ height: `${sorted.length * rowPx}px` }}
        onKeyDown={(event) => moveFocus(event, rowPx)}
      >
        {sorted.slice(from, to).map((row, offset) => {
          const index = from + offset;
          return (
            <div
              key={keyOf(row)}
              role="row"
              class="list-row"
              data-index={index}
              aria-rowindex={index + 2}
              style={{ gridTemplateColumns: tracks, transform: `translateY(${index * rowPx}px)` }}
            >
              {isNarrow.value ? <NarrowRow columns={columns} row={row} /> : cells(columns, row)}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Head<T>({
  column: { title, sort: key, isNumber },
  index,
  sort,
  onSort,
}: {
  column: Column<T>;
  index: number;
  sort: Sort | undefined;
  onSort: (sort: Sort) => void;
}) {
  const isSorted = sort?.column === index;
  const order = isSorted ? (sort.down ? "descending" : "ascending") : undefined;
  return (
    <div
      role="columnheader"
      class={isNumber ? "cell cell-number" : "cell"}
      {...(key && { "aria-sort": order ?? "none" })}
    >
      {key ? (
        <button
          type="button"
          class="sort"
          onClick={() => onSort({ column: index, down: isSorted && !sort.down })}
        >
          {title}
          {isSorted && <Icon name={sort.down ? "down" : "up"} />}
        </button>
      ) : (
        title
      )}
    </div>
  );
}

function cells<T>(columns: Column<T>[], row: T) {
  return columns.map(({ title, cell, isNumber }) => (
    <div key={title} role="cell" class={isNumber ? "cell cell-number" : "cell"}>
      {cell(row)}
    </div>
  ));
}

/**
 * Two lines on a narrow screen: title and state, then the other columns as far as they fit. Numbers are shown with the
 * name of their column.
 */
function NarrowRow<T>({ columns, row }: { columns: Column<T>[]; row: T }) {
  const at = (where: Column<T>["narrow"]) => columns.filter(({ narrow }) => narrow === where);
  return (
    <>
      <div role="cell" class="cell narrow-title">
        {at("title").map(({ title, cell }) => (
          <span key={title}>{cell(row)}</span>
        ))}
      </div>
      <div role="cell" class="cell narrow-side">
        {at("side").map(({ title, cell }) => (
          <span key={title}>{cell(row)}</span>
        ))}
      </div>
      <div role="cell" class="cell narrow-line">
        {at("line").map(({ title, isNumber, cell }) => (
          <span key={title}>
            <span class={isNumber ? "narrow-name" : "offscreen"}>{title.toLowerCase()} </span>
            {cell(row)}
          </span>
        ))}
      </div>
    </>
  );
}

function sortRows<T>(rows: readonly T[], columns: Column<T>[], sort: Sort | undefined) {
  const key = sort && columns[sort.column]?.sort;
  if (!key) return rows;
  const factor = sort.down ? -1 : 1;
  return [...rows].sort((a, b) => factor * compare(key(a), key(b)));
}

function compare(a: string | number, b: string | number): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The range of visible rows, with some above and below. */
function useWindow(
  body: { current: HTMLElement | null },
  count: number,
  rowPx: number,
): [from: number, to: number] {
  const [range, setRange] = useState<[number, number]>([0, 60]);
  useLayoutEffect(() => {
    let frame = 0;
    const measure = (): void => {
      frame = 0;
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const from = Math.max(0, Math.floor(-top / rowPx) - MARGIN_ROWS);
      const to = Math.max(0, Math.ceil((window.innerHeight - top) / rowPx) + MARGIN_ROWS);
      setRange((known) => (known[0] === from && known[1] === to ? known : [from, to]));
    };
    const plan = (): void => {
      frame ||= requestAnimationFrame(measure);
    };
    measure();
    window.addEventListener("scroll", plan, { passive: true });
    window.addEventListener("resize", plan);
    return () => {
      cancelAnimationFrame(frame);
      window.removeEventListener("scroll", plan);
      window.removeEventListener("resize", plan);
    };
  }, [count, rowPx]);
  return range;
}

/** Arrow keys move between rows, including rows that are not rendered yet. */
function moveFocus(event: KeyboardEvent, rowPx: number): void {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const body = event.currentTarget as HTMLElement;
  const row = (event.target as HTMLElement).closest<HTMLElement>(".list-row");
  if (!step || !row || !(event.target as HTMLElement).matches("a")) return;
  event.preventDefault();
  const next = Number(row.dataset.index) + step;
  const find = () => body.querySelector<HTMLElement>(`[data-index="${next}"] a`);
  const wanted = find();
  if (!wanted) return;
  wanted.focus({ preventScroll: true });
  const { top, bottom } = wanted.getBoundingClientRect();
  const low = window.innerHeight - rowPx;
  if (bottom > low) window.scrollBy(0, bottom - low);
  else if (top < 2 * rowPx) window.scrollBy(0, top - 2 * rowPx);
}
