import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { repositoryRoot } from "@tenure/testing/repository";
import { expect, test } from "vitest";

// What a browser has to load. `npm test` has built it.

const SITE = join(repositoryRoot, "packages/console/dist/site");
const FIRST_LOAD_BYTES_MAX = 60_000;
const EVERYTHING_BYTES_MAX = 150_000;

const page = readFileSync(join(SITE, "index.html"), "utf8");
const assets = readdirSync(join(SITE, "assets"));
const zippedBytes = (files: string[]): number =>
  files.reduce(
    (sum, file) => sum + gzipSync(readFileSync(join(SITE, file)), { level: 9 }).length,
    0,
  );

test("the first load is small", () => {
  const named = assets
    .filter((file) => page.includes(`/assets/${file}`))
    .map((file) => `assets/${file}`);
  expect(named.length).toBeGreaterThanOrEqual(2);
  const bytes = zippedBytes(["index.html", ...named]);
  const everything = zippedBytes(["index.html", ...assets.map((file) => `assets/${file}`)]);
  console.log(`console: ${bytes} bytes gzipped at first, ${everything} with the plots`);
  expect(bytes).toBeLessThan(FIRST_LOAD_BYTES_MAX);
  expect(everything).toBeLessThan(EVERYTHING_BYTES_MAX);
});

test("nothing comes from elsewhere, and nothing is inline", () => {
  expect(page).not.toMatch(/<script(?![^>]*\bsrc=")/);
  expect(page).not.toMatch(/<style|\bstyle=|\bon\w+=/);
  for (const file of assets) {
    const text = readFileSync(join(SITE, "assets", file), "utf8");
    expect(
      text.match(/(?:src|href|url\(|import\()\W{0,2}https?:\/\/[^\s"'`)]+/g) ?? [],
      file,
    ).toEqual([]);
  }
});
