/** Icons on a 16 px grid with one stroke width, for 13 px text. */
const PATHS = {
  overview: "M2.5 9.5h3l2-6 3 10 2-4h1.5",
  nodes: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01",
  deployments: "M8 1.8l5.5 3.1v6.2L8 14.2l-5.5-3.1V4.9zM2.7 5l5.3 3 5.3-3M8 8v6",
  jobs: "M3 4h10M3 8h7M3 12h4M12.2 9.2l1.8 1.8-3 3",
  sessions: "M2.5 3h11v7.5H7L4 13v-2.5H2.5z",
  signers: "M10.5 2.5a3 3 0 1 1-2.6 4.5L3 11.8V13.5h2l.7-1.2h1.2V11l1-1",
  cluster:
    "M8 5V3M8 5a1.8 1.8 0 1 0 0 .01M4 13.2a1.8 1.8 0 1 0 0-.01M12 13.2a1.8 1.8 0 1 0 0-.01M6.9 8l-2 3.6M9.1 8l2 3.6",
  events: "M4 2.5v11M4 4h9M4 8h6M4 12h8",
  copy: "M5.5 5.5h7v8h-7zM3.5 10.5v-8h7",
  check: "M3 8.5l3.2 3.2L13 4.8",
  close: "M4 4l8 8M12 4l-8 8",
  menu: "M2.5 4h11M2.5 8h11M2.5 12h11",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6M8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9",
  moon: "M13 9.6A5.5 5.5 0 0 1 6.4 3 5.5 5.5 0 1 0 13 9.6z",
  auto: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
  search: "M7 2.8a4.2 4.2 0 1 0 0 8.4 4.2 4.2 0 0 0 0-8.4M10.2 10.2l3.3 3.3",
  chevron: "M6 3.5L10.5 8 6 12.5",
  plus: "M8 3v10M3 8h10",
  out: "M6.5 2.5h-4v11h4M6 8h7.5M10.8 5.2L13.5 8l-2.7 2.8",
  up: "M8 13V3.5M4 7l4-4 4 4",
  down: "M8 3v9.5M4 9l4 4 4-4",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** The mark of a tone. Each has its own shape, so that it does not depend on colour. */
const TONE_PATHS = {
  good: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11z",
  busy: "M8 1.5L14.5 8 8 14.5 1.5 8z",
  warn: "M8 2l6.6 11.5H1.4z",
  bad: "M2.5 2.5h11v11h-11z",
  idle: "M8 3.2a4.8 4.8 0 1 0 0 9.6 4.8 4.8 0 0 0 0-9.6z",
} as const;

export function ToneMark({ tone }: { tone: keyof typeof TONE_PATHS }) {
  return (
    <svg class={`mark mark-${tone}`} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={TONE_PATHS[tone]} />
    </svg>
  );
}
