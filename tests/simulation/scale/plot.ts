import type { Outcome } from "./scenarios.ts";

const WIDTH = 720;
const HEIGHT = 260;
const LEFT = 60;
const RIGHT = 20;
const TOP = 40;
const BOTTOM = 46;

/** How many deployments have an owner, over time: one small chart per scenario, readable on light and on dark. */
export function renderProgress(outcomes: readonly Outcome[]): string {
  const charts = outcomes.map((outcome, nth) => chartOf(outcome, nth * HEIGHT));
  const height = HEIGHT * outcomes.length;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="Deployments without an owner over time">
<rect width="100%" height="100%" fill="#ffffff"/>
${charts.join("\n")}
</svg>
`;
}

function chartOf({ what, size, progress }: Outcome, offset: number): string {
  const openOf = (owned: number) => size.deployments - owned;
  const open = progress.map(({ ms, owned }) => ({ ms, open: openOf(owned) }));
  const endMs = Math.max(1, ...open.map(({ ms }) => ms));
  const most = Math.max(1, ...open.map((point) => point.open));
  const x = (ms: number) => LEFT + (ms / endMs) * (WIDTH - LEFT - RIGHT);
  const y = (count: number) => TOP + (1 - count / most) * (HEIGHT - TOP - BOTTOM);
  const points = [{ ms: 0, open: most }, ...open]
    .map((point) => `${x(point.ms).toFixed(1)},${y(point.open).toFixed(1)}`)
    .join(" ");
  const line = (x1: number, y1: number, x2: number, y2: number) =>
    `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke="#d0d7de"/>`;
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return `<g transform="translate(0 ${offset})">
<text x="${LEFT}" y="22" font-size="14" fill="#1f2328">${what}: deployments without an owner</text>
${ticks.map((share) => line(LEFT, y(share * most), WIDTH - RIGHT, y(share * most))).join("")}
${ticks.map((share) => `<text x="${LEFT - 8}" y="${y(share * most) + 4}" text-anchor="end" fill="#59636e">${Math.round(share * most).toLocaleString("en")}</text>`).join("")}
${ticks.map((share) => `<text x="${x(share * endMs)}" y="${HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#59636e">${secondsOf(share * endMs)}</text>`).join("")}
<polyline points="${points}" fill="none" stroke="#0969da" stroke-width="2" stroke-linejoin="round"/>
</g>`;
}

const secondsOf = (ms: number): string =>
  `${(ms / 1_000).toLocaleString("en", { maximumFractionDigits: ms < 10_000 ? 1 : 0 })} s`;
