import type { Outcome } from "./scenarios.ts";

const WIDTH = 760;
const HEIGHT = 380;
const LEFT = 64;
const RIGHT = 220;
const TOP = 44;
const BOTTOM = 52;
const COLORS = ["#0969da", "#1a7f37", "#9a6700", "#cf222e", "#8250df", "#57606a"];
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

/**
 * Which share of the deployments in question has no owner, over time, one line per run. Time is logarithmic: a small
 * fleet needs a second and a large one minutes. A colour per size, a dash per scenario, on white for any background.
 */
export function renderProgress(outcomes: readonly Outcome[]): string {
  const runs = outcomes.filter(({ progress, tookMs }) => progress.length > 1 && tookMs);
  const sizes = [...new Set(runs.map(({ nodes }) => nodes))];
  const lines = runs.map((run) => {
    const nth = runs.filter(({ nodes }) => nodes === run.nodes).indexOf(run);
    return {
      run,
      color: COLORS[sizes.indexOf(run.nodes) % COLORS.length]!,
      dash: DASHES[nth % 4]!,
    };
  });
  const decades = [100, 1_000, 10_000, 100_000, 1_000_000];
  const endMs = Math.max(...runs.map(({ tookMs }) => tookMs ?? 0));
  const ticks = decades.slice(0, decades.findIndex((ms) => ms >= endMs) + 1);
  const x = (ms: number) => {
    const share = Math.log(Math.max(100, ms) / 100) / Math.log(ticks.at(-1)! / 100);
    return LEFT + share * (WIDTH - LEFT - RIGHT);
  };
  const y = (share: number) => TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);
  const parts = [
    `<text x="${LEFT}" y="24" font-size="14" fill="#1f2328">Deployments without an owner, after the rows appeared or the nodes were lost</text>`,
    ...[0, 0.25, 0.5, 0.75, 1].map((share) => horizontal(y(share), `${100 * share} %`)),
    ...ticks.map((ms) =>
      vertical(x(ms), ms < 1_000 ? `${ms / 1_000} s` : `${number(ms / 1_000)} s`),
    ),
    ...lines.map(({ run, color, dash }) => curve(run, { color, dash, x, y })),
    ...lines.map(({ run, color, dash }, nth) => legend(run, { color, dash, nth })),
  ];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="Deployments without an owner over time, by size of the fleet">
<rect width="100%" height="100%" fill="#ffffff"/>
${parts.join("\n")}
</svg>
`;
}

interface Stroke {
  color: string;
  dash: string;
}

function curve(
  { progress, tookMs }: Outcome,
  { color, dash, x, y }: Stroke & { x: (ms: number) => number; y: (share: number) => number },
): string {
  const most = progress[0]!.open;
  const points = thinned([...progress.slice(0, -1), { ms: tookMs ?? 0, open: 0 }]);
  const path = points.map(({ ms, open }) => `${x(ms).toFixed(1)},${y(open / most).toFixed(1)}`);
  return `<polyline points="${path.join(" ")}" fill="none" stroke="${color}" stroke-width="2" stroke-dasharray="${dash}" stroke-linejoin="round"/>`;
}

const POINTS_MAX = 200;

function thinned<T>(points: readonly T[]): T[] {
  const step = Math.ceil(points.length / POINTS_MAX);
  return points.filter((_, nth) => nth % step === 0 || nth === points.length - 1);
}

function legend({ nodes, what }: Outcome, { color, dash, nth }: Stroke & { nth: number }): string {
  const [left, top] = [WIDTH - RIGHT + 16, TOP + 6 + nth * 20];
  return `<line x1="${left}" y1="${top}" x2="${left + 28}" y2="${top}" stroke="${color}" stroke-width="2" stroke-dasharray="${dash}"/><text x="${left + 34}" y="${top + 4}" fill="#1f2328">${number(nodes)}: ${what}</text>`;
}

const horizontal = (at: number, text: string): string =>
  `<line x1="${LEFT}" y1="${at}" x2="${WIDTH - RIGHT}" y2="${at}" stroke="#d0d7de"/><text x="${LEFT - 8}" y="${at + 4}" text-anchor="end" fill="#59636e">${text}</text>`;
const vertical = (at: number, text: string): string =>
  `<line x1="${at}" y1="${TOP}" x2="${at}" y2="${HEIGHT - BOTTOM}" stroke="#eaeef2"/><text x="${at}" y="${HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#59636e">${text}</text>`;
const number = (value: number): string => value.toLocaleString("en");
