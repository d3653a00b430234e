import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { currentLocation, setQuery } from "../router.ts";
import { Icon } from "./icons.tsx";
import { Id } from "./id.tsx";

/** The search text of `?q=`, which filters every list. */
export const sought = (): string =>
  currentLocation.value.query.get("q")?.trim().toLowerCase() ?? "";
export const chosen = (name: string): string => currentLocation.value.query.get(name) ?? "";

export function Filters({
  placeholder,
  children,
}: {
  placeholder: string;
  children?: ComponentChildren;
}) {
  const field = useRef<HTMLInputElement>(null);
  // Before the first paint, so that the shortcut works as soon as the page is visible.
  useLayoutEffect(() => {
    const focus = (event: KeyboardEvent) => {
      if (event.key !== "/" || isTyping(event.target as Element)) return;
      event.preventDefault();
      field.current?.focus();
    };
    document.addEventListener("keydown", focus);
    return () => document.removeEventListener("keydown", focus);
  }, []);
  return (
    <search class="filters">
      <label class="search">
        <Icon name="search" />
        <span class="offscreen">Filter, or press /</span>
        <input
          ref={field}
          type="search"
          placeholder={placeholder}
          value={currentLocation.value.query.get("q") ?? ""}
          onInput={(event) => setQuery({ q: event.currentTarget.value })}
        />
        <kbd>/</kbd>
      </label>
      {children}
    </search>
  );
}

export const isTyping = (target: Element): boolean =>
  target.matches("input, textarea, select, [contenteditable]");

export interface Choice {
  value: string;
  label: string;
  count?: number;
}

/** A choice kept in the URL. The first option means all. */
export function Choices({ name, label, of }: { name: string; label: string; of: Choice[] }) {
  const current = chosen(name);
  return (
    <fieldset class="choices">
      <legend class="offscreen">{label}</legend>
      {of.map(({ value, label, count }) => (
        <button
          type="button"
          key={value}
          aria-pressed={current === value}
          onClick={() => setQuery({ [name]: value })}
        >
          {label}
          {count !== undefined && <span class="count">{count}</span>}
        </button>
      ))}
    </fieldset>
  );
}

export function Select({ name, label, of }: { name: string; label: string; of: Choice[] }) {
  return (
    <label class="select">
      <span class="offscreen">{label}</span>
      <select
        value={chosen(name)}
        onChange={(event) => setQuery({ [name]: event.currentTarget.value })}
      >
        {of.map(({ value, label }) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A removable filter that a link set. */
export function Applied({ name }: { name: string }) {
  const value = chosen(name);
  if (value === "") return null;
  return (
    <span class="applied">
      {name} <Id of={value} />
      <button
        type="button"
        class="icon-button"
        aria-label={`Take the filter by ${name} off`}
        onClick={() => setQuery({ [name]: "" })}
      >
        <Icon name="close" />
      </button>
    </span>
  );
}
