import { signal } from "@preact/signals";

export interface PageLocation {
  path: string;
  query: URLSearchParams;
}

const read = (): PageLocation => ({
  path: window.location.pathname,
  query: new URLSearchParams(window.location.search),
});

/** The current location. Components that read it redraw when it changes. */
export const currentLocation = signal<PageLocation>(read());

export function go(to: string, { replace = false } = {}): void {
  if (to === window.location.pathname + window.location.search) return;
  if (replace) window.history.replaceState(null, "", to);
  else window.history.pushState(null, "", to);
  currentLocation.value = read();
}

/** Changes the query, so that filters are part of the URL and survive a reload. */
export function setQuery(changes: Record<string, string>): void {
  const query = new URLSearchParams(currentLocation.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  go(currentLocation.value.path + (text && `?${text}`), { replace: true });
}

/** Handles plain clicks on links of the console without a page load. Other clicks keep their browser behaviour. */
export function followLinks(): void {
  window.addEventListener("popstate", () => {
    currentLocation.value = read();
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

/** Matches `/nodes/:id` with `/nodes/x` as `{ id: "x" }`; `undefined` if it does not match. */
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

/** Keeps invalid escapes, such as a single `%`, as they are. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
