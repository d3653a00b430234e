import { readFileSync } from "node:fs";
import { join } from "node:path";
import { repositoryRoot } from "@tenure/testing/repository";
import { describe, expect, test } from "vitest";

const read = (file: string): string => readFileSync(join(repositoryRoot, file), "utf8");
const blocks = (page: string): string[] =>
  [...page.matchAll(/^```[a-z]*\n(.*?)^```/gms)].map((match) => match[1]!);
const headings = (page: string): string[] =>
  [...page.matchAll(/^(#+) /gm)].map((match) => match[1]!);
const tables = (page: string): number => [...page.matchAll(/^\|/gm)].length;
const links = (page: string): string[] =>
  [...page.matchAll(/\]\(([^)]+)\)/g)].map((match) => match[1]!);

describe("the README", () => {
  const english = read("README.md");
  const chinese = read("README.zh-CN.md");

  test("the README has the same headings, commands, tables and links in both languages", () => {
    expect(headings(chinese)).toEqual(headings(english));
    expect(blocks(chinese)).toEqual(blocks(english));
    expect(tables(chinese)).toBe(tables(english));
    const others = (page: string) =>
      links(page)
        .filter((link) => !link.startsWith("README"))
        .sort();
    expect(others(chinese)).toEqual(others(english));
  });

  test("names the commands that the scripts and CI use", () => {
    const scripts = JSON.parse(read("package.json")).scripts as Record<string, string>;
    expect(blocks(english)).toContain("npm ci && npm start\n");
    expect(blocks(english)).toContain("npm ci && npm test\n");
    expect(scripts.check).toMatch(/npm test$/);
    expect(read(".ci/run")).toMatch(/^npm ci\nnpm run check$/m);
  });

  test("links to pages that exist", () => {
    for (const page of ["README.md", "README.zh-CN.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]) {
      for (const link of links(read(page)).filter((link) => !link.includes(":"))) {
        expect(() => read(link.split("#")[0]!), `${link} in ${page}`).not.toThrow();
      }
    }
  });
});
