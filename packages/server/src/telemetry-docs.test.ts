import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { createTelemetry } from "./telemetry.ts";

const SOURCE = new URL("./", import.meta.url);
const PAGE = readFileSync(new URL("../../../docs/telemetry.md", import.meta.url), "utf8");

test("docs/telemetry.md has exactly the metrics there are, with kind, labels and sentence", () => {
  expect(rowsUnder("Metrics").toSorted()).toEqual(ownMetrics().map(metricRow).toSorted());
});

test("every metric is named after the rule and says what to conclude from it", () => {
  for (const { name, help } of ownMetrics()) {
    expect(name).toMatch(/^(tenure|scheduler_phase2)(_[a-z0-9]+)+$/);
    expect(help, name).toMatch(/^[^|\n]{20,}[.]$/);
  }
});

test("docs/telemetry.md has exactly the log events of the source, with their level", () => {
  const written = [...new Set(statements().logged)];
  expect(firstCells("Log lines", 2)).toEqual(written.toSorted());
});

test("docs/telemetry.md has exactly the events that are stored", () => {
  const written = [...new Set(statements().stored)];
  expect(firstCells("Stored events", 1)).toEqual(written.toSorted());
});

test("every event is named noun.past-participle or so: two words, and lower case", () => {
  const { logged, stored } = statements();
  for (const row of [...logged, ...stored]) expect(row).toMatch(/^\| `[a-z0-9-]+\.[a-z0-9-]+` \|/);
});

/**
 * Names that a call computes, by file. Every call without a literal name has to be here, so that its names are in the
 * docs too.
 */
const COMPUTED: Record<string, { level?: string; stored?: true; names: string[] }> = {
  "delivery/redis-delivery.ts": {
    level: "warn",
    names: ["inbox.not-read", "inbox.not-scanned", "inbox.adoption-failed"],
  },
  "membership/members-events.ts": {
    level: "warn",
    stored: true,
    names: ["brake.engaged", "brake.recovered"],
  },
  "nonces/nonce-events.ts": { level: "warn", names: ["lease.taken-over", "write.fenced"] },
  "deployments/change-notifier.ts": { level: "error", names: ["deployment.skipped"] },
};

test("every call of the log that computes the name of its event is listed with its names", () => {
  const computing = files().filter(({ text }) =>
    [
      ...text.matchAll(/\blog(\.(debug|info|warn|error)|\[[^\]]*\])\(\s*\{[^;]*?\bevent\b(?!: ")/g),
    ].some(([call]) => !/\bevent: "/.test(call)),
  );
  expect(computing.map(({ name }) => name).toSorted()).toEqual(Object.keys(COMPUTED).toSorted());
  const source = files()
    .map(({ text }) => text)
    .join("\n");
  for (const name of Object.values(COMPUTED).flatMap(({ names }) => names))
    expect(source.includes(`"${name}"`) || source.includes(`"${name.split(".")[1]}"`), name).toBe(
      true,
    );
});

/** The process's and Node's own figures are prom-client's, and documented there. */
function ownMetrics(): DescribedMetric[] {
  const metrics = createTelemetry().registry.getMetricsAsArray() as unknown as DescribedMetric[];
  return metrics.filter(({ name }) => !/^tenure_(process|nodejs)_/.test(name));
}

/** The fields exist on every metric of prom-client, though its types name but some. */
type DescribedMetric = {
  name: string;
  help: string;
  labelNames: string[];
  constructor: { name: string };
};

function metricRow(metric: DescribedMetric): string {
  const labels = metric.labelNames.map((label) => `\`${label}\``).join(", ");
  const kind = metric.constructor.name.toLowerCase();
  return `| \`${metric.name}\` | ${kind} | ${labels} | ${metric.help} |`;
}

/** Every `event: "x.y"` of the source: in a call of the log, with its level, or stored for people. */
function statements(): { logged: string[]; stored: string[] } {
  const source = files()
    .map(({ text }) => text)
    .join("\n");
  const inLog = /\blog\.(debug|info|warn|error)\(\s*\{[^{}]*?\bevent: "([^"]+)"/g;
  const logged = [...source.matchAll(inLog)].map(
    ([, level, event]) => `| \`${event}\` | ${level} |`,
  );
  const asBug = /\blogUnlessStoreDown\(\s*[\w.]+,\s*\{[^{}]*?\bevent: "([^"]+)"/g;
  logged.push(...[...source.matchAll(asBug)].map(([, event]) => `| \`${event}\` | error |`));
  const rest = source.replace(inLog, "").replace(asBug, "");
  const stored = [...rest.matchAll(/\bevent: "([^"]+\.[^"]+)"/g)].map(
    ([, event]) => `| \`${event}\` |`,
  );
  for (const { level, stored: isStored, names } of Object.values(COMPUTED)) {
    if (level) logged.push(...names.map((name) => `| \`${name}\` | ${level} |`));
    if (isStored) stored.push(...names.map((name) => `| \`${name}\` |`));
  }
  return { logged, stored };
}

function files(): { name: string; text: string }[] {
  return readdirSync(SOURCE, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts"))
    .map((name) => ({ name, text: readFileSync(new URL(name, SOURCE), "utf8") }));
}

function rowsUnder(heading: string): string[] {
  const section = PAGE.split(/^## /m).find((part) => part.startsWith(`${heading}\n`)) ?? "";
  return section.split("\n").filter((line) => line.startsWith("| `"));
}

/** The beginning of each row, up to and with so many cells: what follows is prose. */
function firstCells(heading: string, count: number): string[] {
  const beginning = new RegExp(`^(\\|[^|]*){${count}}\\|`);
  return rowsUnder(heading).map((row) => beginning.exec(row)?.[0] ?? row);
}
