import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { describe, expect, test } from "vitest";

const ROOT = import.meta.dirname;
const files = readdirSync(ROOT, { recursive: true, encoding: "utf8" });
const pages = files.filter((file) => file.endsWith("README.md"));

const FILE = /`([\w./-]+\.(?:ts|lua|sql|md))`(?: `(#?\w+)`)?/g;

/** A name in a page is relative to the page's folder or to src; a bare file name may stand for a file below the folder. */
function find(page: string, name: string): string | undefined {
  const below = files.filter(
    (file) => file.startsWith(prefixOf(page)) && file.endsWith(`/${name}`),
  );
  const places = [join(dirname(page), name), name, ...below].map((place) => join(ROOT, place));
  return places.find((place) => existsSync(place));
}

const prefixOf = (page: string): string => (dirname(page) === "." ? "" : `${dirname(page)}/`);

describe.each(pages)("%s", (page) => {
  const named = [...readFileSync(join(ROOT, page), "utf8").matchAll(FILE)];

  test("names files that exist", () => {
    const missing = named.map(([, name]) => name!).filter((name) => !find(page, name));
    expect(missing).toEqual([]);
  });

  test("names functions that are in the file before them", () => {
    const missing = named.filter(([, name, symbol]) => {
      const file = find(page, name!);
      if (!file || !symbol) return false;
      return !new RegExp(`(?<![\\w#])${symbol}\\b`).test(readFileSync(file, "utf8"));
    });
    expect(missing.map(([text]) => text)).toEqual([]);
  });

  test("fits on one screen", () => {
    const lines = readFileSync(join(ROOT, page), "utf8").split("\n").length;
    expect(lines, relative(ROOT, page)).toBeLessThanOrEqual(page === "README.md" ? 130 : 80);
  });
});
