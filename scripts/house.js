// Measures the house rules of docs/style.md and holds their limits: words of the old dialect, files in a folder, length of
// a function. `--check` prints only what is over its limit, and fails then.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { basename, dirname, extname, resolve } from "node:path";
import { parseSync } from "@swc/core";

const root = resolve(import.meta.dirname, "..");
const LIMITS = JSON.parse(readFileSync(resolve(import.meta.dirname, "house.json"), "utf8"));
const WORDS =
  /\b(whoever|somebody|nobody|everybody|anybody|in hand|told|tells?|telling|hears?|heard|says?|said|anew|for ever)\b/g;
const isTest = (/** @type {string} */ file) =>
  /\.test\.tsx?$|(^|\/)testing\/|^tests\/|^packages\/testing\//.test(file);

const files = execFileSync("git", ["ls-files", "-co", "--exclude-standard", "packages", "tests"], {
  cwd: root,
  encoding: "utf8",
})
  .split("\n")
  .filter((file) => /\.(tsx?|lua|sql|css)$/.test(file) && !file.includes("/planted/"))
  .flatMap((file) => {
    try {
      return [{ file, text: readFileSync(resolve(root, file), "utf8") }];
    } catch {
      return []; // Deleted and not yet committed.
    }
  });
const product = files.filter(({ file }) => !isTest(file));

/** A package, and within the server a folder of `src`. */
const areaOf = (/** @type {string} */ file) => {
  const [top = "", name = "", , folder, ...rest] = file.split("/");
  if (top !== "packages") return `${top}/${name}`;
  return name === "server" && rest.length > 0 ? `server/${folder}` : name;
};

const wordsIn = (/** @type {string} */ text) =>
  [
    ...text
      .replace(/([a-z])([A-Z])/g, "$1 $2")
      .toLowerCase()
      .matchAll(WORDS),
  ].length;

/** The functions of a module with their names and lengths in lines; those of tests and classes included. */
function functionsOf(/** @type {{ file: string, text: string }} */ { file, text }) {
  const bytes = Buffer.from(text);
  /** @type {{ file: string, name: string, lines: number }[]} */
  const found = [];
  const tsx = extname(file) === ".tsx";
  const linesOf = (/** @type {{ start: number, end: number }} */ { start, end }) =>
    bytes
      .subarray(start - 1, end - 1)
      .toString()
      .split("\n").length;
  const visit = (/** @type {any} */ node, /** @type {string} */ name) => {
    if (!node || typeof node !== "object") return;
    if (Array.isArray(node)) {
      for (const one of node) visit(one, name);
      return;
    }
    const own = node.identifier?.value ?? node.key?.value ?? node.id?.value ?? name;
    if (/^(Function|ArrowFunction|ClassMethod|MethodProperty)/.test(node.type ?? "") && node.span)
      found.push({ file, name: own, lines: linesOf(node.span) });
    for (const [key, value] of Object.entries(node)) if (key !== "span") visit(value, own);
  };
  visit(parseSync(text, { syntax: "typescript", tsx }).body, "");
  return found;
}

const longest = product
  .filter(({ file }) => /\.tsx?$/.test(file))
  .flatMap(functionsOf)
  .sort((a, b) => b.lines - a.lines);
const folders = count(
  product.filter(({ file }) => /\.tsx?$/.test(file)),
  ({ file }) => dirname(file),
);
// Migrations are applied as they are and cannot be reworded.
const worded = product.filter(({ file }) => !file.includes("/migrations/"));
const dialect = worded.reduce((sum, { text }) => sum + wordsIn(text), 0);

/** @type {string[]} */
const problems = [];
if (dialect > LIMITS.words)
  problems.push(`${dialect} words of the old dialect, at most ${LIMITS.words} are allowed`);
for (const { file, name, lines } of longest)
  if (lines > LIMITS.function_lines)
    problems.push(`${file}: ${name} has ${lines} lines, at most ${LIMITS.function_lines}`);
for (const [folder, number] of folders)
  if (number > LIMITS.folder_files)
    problems.push(`${folder}: ${number} files, at most ${LIMITS.folder_files}`);

if (process.argv.includes("--check")) {
  for (const problem of problems) console.error(`house: ${problem}`);
  if (problems.length === 0)
    console.log(`house: ${product.length} files, ${dialect} words of the old dialect, 0 problems`);
  process.exit(problems.length > 0 ? 1 : 0);
}

print("lines of product code", product);
print(
  "lines of test code",
  files.filter(({ file }) => isTest(file)),
);
console.log(`\ndialect words: ${dialect}`);
for (const [area, number] of ordered(count(worded, ({ file }) => areaOf(file), wordsIn)))
  if (number > 0) console.log(`  ${String(number).padStart(6)}  ${area}`);
console.log("\nlongest functions");
for (const { file, name, lines } of longest.slice(0, 15))
  console.log(`  ${String(lines).padStart(6)}  ${name}  ${basename(file)}`);
console.log("\nfiles in a folder");
for (const [folder, number] of ordered(folders).slice(0, 10))
  console.log(`  ${String(number).padStart(6)}  ${folder}`);

/**
 * @param {{ file: string, text: string }[]} list
 * @param {(one: { file: string, text: string }) => string} key
 * @param {(text: string) => number} [weight]
 */
function count(list, key, weight = () => 1) {
  const counts = new Map();
  for (const one of list) counts.set(key(one), (counts.get(key(one)) ?? 0) + weight(one.text));
  return counts;
}

/** @param {Map<string, number>} counts */
function ordered(counts) {
  return [...counts].sort((a, b) => b[1] - a[1]);
}

/** @param {string} title @param {{ file: string, text: string }[]} list */
function print(title, list) {
  const lines = count(
    list,
    ({ file }) => areaOf(file),
    (text) => text.split("\n").length - 1,
  );
  const numbers = count(list, ({ file }) => areaOf(file));
  const total = [...lines.values()].reduce((sum, one) => sum + one, 0);
  console.log(`\n${title}: ${total} in ${list.length} files`);
  for (const [area, sum] of ordered(lines))
    console.log(`  ${String(sum).padStart(6)}  ${area} (${numbers.get(area)} files)`);
}
