import { signal } from "@preact/signals";

export interface Place {
  path: string;
  query: URLSearchParams;
}

const read = (): Place => ({
  path: window.location.pathname,
  query: new URLSearchParams(window.location.search),
});

/** Where the reader is. Every part that looks at it is drawn anew when it changes. */
export const place = signal<Place>(read());

export function go(to: string, { replace = false } = {}): void {
  if (to === window.location.pathname + window.location.search) return;
  if (replace) window.history.replaceState(null, "", to);
  else window.history.pushState(null, "", to);
  place.value = read();
}

/** Changes what stands behind the `?`, so that a filter is part of the address and survives a reload. */
export function setQuery(changes: Record<string, string>): void {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  go(place.value.path + (text && `?${text}`), { replace: true });
}

/** Plain links work as links do everywhere: only a plain click on one of ours stays in this page. */
export function followLinks(): void {
  window.addEventListener("popstate", () => {
    place.value = read();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || hasModifier(event)) return;
    const link = (event.target as Element).closest("a");
    const href = link?.getAttribute("href");
    if (!link || !href?.startsWith("/") || link.target || link.hasAttribute("download")) return;
    event.preventDefault();
    go(href);
  });
}

const hasModifier = (event: MouseEvent): boolean =>
  event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;

/** `/nodes/:id` against `/nodes/x`: `{ id: "x" }`; `undefined` when it does not fit. */
export function matchPath(pattern: string, path: string): Record<string, string> | undefined {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return undefined;
  const params: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const text = given[index] ?? "";
    if (part.startsWith(":")) params[part.slice(1)] = decode(text);
    else if (part !== text) return undefined;
  }
  return params;
}

/** An address typed by hand may hold a lone `%`. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
