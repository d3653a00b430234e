import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { visible } from "../model/text.ts";

/** The frame of every page: title, subtitle and actions. */
export function Page({
  title,
  heading,
  sub,
  actions,
  back,
  children,
}: {
  title: string;
  heading?: ComponentChildren;
  sub?: ComponentChildren;
  actions?: ComponentChildren;
  back?: { href: string; label: string };
  children: ComponentChildren;
}) {
  const head = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${visible(title)} · Tenure`;
  }, [title]);
  // Before the first paint: later it would take the focus from a user who types.
  useLayoutEffect(() => {
    // Announces the new page to screen readers, except for the first page.
    if (window.history.state !== null || document.activeElement !== document.body) {
      head.current?.focus({ preventScroll: true });
    }
    window.scrollTo(0, 0);
  }, []);
  return (
    <>
      {back && (
        <nav class="crumbs" aria-label="Breadcrumb">
          <a href={back.href}>{back.label}</a>
        </nav>
      )}
      <header class="page-head">
        <div class="page-title">
          <h1 ref={head} tabIndex={-1}>
            {heading ?? title}
          </h1>
          {sub && <div class="page-sub">{sub}</div>}
        </div>
        {actions && <div class="page-actions">{actions}</div>}
      </header>
      {children}
    </>
  );
}

export function Card({
  title,
  side,
  flush = false,
  children,
}: {
  title?: ComponentChildren;
  side?: ComponentChildren;
  flush?: boolean;
  children: ComponentChildren;
}) {
  return (
    <section class={flush ? "card card-flush" : "card"}>
      {title && (
        <header class="card-head">
          <h2>{title}</h2>
          {side && <div class="card-side">{side}</div>}
        </header>
      )}
      {children}
    </section>
  );
}

/** Names and values in columns. */
export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of.map(([name, value]) => (
        <div key={name} class="fact">
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
