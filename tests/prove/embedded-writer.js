// Opens the embedded store as a server does, says what it finds there, then writes for as long as it lives.
// A write is acknowledged by one line on stdout, written when its commit was answered and not before.
//
//   node embedded-writer.js <built pglite.js> <data directory> <round> <writes in flight>
//
// Writes of one round are numbered from 1 and sent in that order, so what survives must be 1…n without a gap.
// Every fifth is a transaction over two tables: it must be in both or in neither.
import { writeSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , storeFile, dataDir, round, inFlight] = process.argv;
const { openPglite } = await import(pathToFileURL(String(storeFile)).href);
const db = await openPglite({ dataDir });

/** @param {string} line */
const say = (line) => writeSync(1, `${line}\n`);
/** @param {string} text @param {unknown[]} values */
const statement = (text, ...values) => ({ name: text, text, values });

await db.script(`
  create table if not exists letter (round int, n int, primary key (round, n));
  create table if not exists copy (round int, n int, primary key (round, n));`);
const found = await db.query(
  statement(`
    select letter.round, count(*)::int as count, max(letter.n) as last, count(copy.n)::int as copies
      from letter left join copy using (round, n)
     group by letter.round order by letter.round`),
);
say(`found ${JSON.stringify(found.rows)}`);

const insert = (/** @type {string} */ table, /** @type {number} */ n) =>
  statement(`insert into ${table} (round, n) values ($1, $2)`, Number(round), n);

let last = 0;
async function writeOn() {
  for (;;) {
    last += 1;
    const n = last;
    if (n % 5 !== 0) await db.query(insert("letter", n));
    else
      await db.transaction(async (/** @type {typeof db} */ tx) => {
        await tx.query(insert("letter", n));
        await tx.query(insert("copy", n));
      });
    say(`acknowledged ${n}`);
  }
}
await Promise.all(Array.from({ length: Number(inFlight) }, writeOn));
