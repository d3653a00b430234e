// Writes to an embedded Postgres as fast as it goes, and measures how long the event loop of this process was kept
// from its other work meanwhile. Prints one line of JSON.
//
//   node embedded-load.js thread|main <built pglite.js> <data directory> <seconds>
//
// `main` runs the same Postgres on the main thread: what the measurement says when the promise is broken.
import { pathToFileURL } from "node:url";

const [, , place, storeFile, dataDir, seconds] = process.argv;
const query = await (place === "main" ? openOnMain() : openInThread());
await query("create table load (id bigserial primary key, note text, n int not null default 0)");
await query("insert into load (note) select 'row ' || g from generate_series(1, 1000) g");

// Own ticks instead of Node's histogram of delays: when no tick comes at all, that one says 0.
/** @type {number[]} */
const gapsMs = [];
let tickedMs = performance.now();
const tick = () => {
  const nowMs = performance.now();
  gapsMs.push(nowMs - tickedMs);
  tickedMs = nowMs;
};
let writes = 0;
const endMs = performance.now() + Number(seconds) * 1_000;
const ticking = setInterval(tick, 1);
await Promise.all(Array.from({ length: 64 }, writeOn));
tick();
clearInterval(ticking);
gapsMs.sort((a, b) => a - b);
const quantile = (/** @type {number} */ share) =>
  Number(gapsMs[Math.ceil(share * gapsMs.length) - 1]?.toFixed(1));
const gaps = { largestMs: quantile(1), p99Ms: quantile(0.99) };
console.log(JSON.stringify({ writesPerSecond: Math.round(writes / Number(seconds)), ...gaps }));
process.exit(0);

async function writeOn() {
  while (performance.now() < endMs) {
    await query("update load set n = n + 1 where id = $1", [1 + (writes % 1_000)]);
    await query("insert into load (note) values ($1)", ["x".repeat(1_000)]);
    writes += 2;
  }
}

/** @returns {Promise<(text: string, values?: unknown[]) => Promise<unknown>>} */
async function openInThread() {
  const { openPglite } = await import(pathToFileURL(String(storeFile)).href);
  const db = await openPglite({ dataDir });
  return (text, values = []) => db.query({ name: text, text, values });
}

/** @returns {Promise<(text: string, values?: unknown[]) => Promise<unknown>>} */
async function openOnMain() {
  const { PGlite } = await import("@electric-sql/pglite");
  const db = await PGlite.create(String(dataDir));
  return (text, values) => db.query(text, values);
}
