import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";
import { expect, test } from "vitest";

interface Component {
  "bom-ref": string;
  purl: string;
  hashes?: { alg: string; content: string }[];
}

test("the files of a release have the packages, what they install and bundle, and their sums", () => {
  const directory = join(scratchDirectory("release"), "release");
  const script = join(repositoryRoot, "scripts/release.js");
  execFileSync(process.execPath, [script, directory], { encoding: "utf8" });
  const files = readdirSync(directory);
  const { version } = JSON.parse(readFileSync(join(repositoryRoot, "package.json"), "utf8"));
  const packages = ["agent", "cli", "console", "protocol", "sdk", "server"];
  expect(files.filter((name) => name.endsWith(".tgz")).sort()).toEqual(
    packages.map((name) => `tenure-${name}-${version}.tgz`),
  );
  execFileSync("sha256sum", ["--check", "--strict", "SHA256SUMS"], { cwd: directory });
  expect(readFileSync(join(directory, "SHA256SUMS"), "utf8").split("\n")).toHaveLength(
    files.length,
  );

  const { components, metadata } = JSON.parse(
    readFileSync(join(directory, "sbom.cdx.json"), "utf8"),
  ) as {
    components: Component[];
    metadata: { component: Component & { name: string } };
  };
  expect(metadata.component).toMatchObject({ name: "tenure", purl: `pkg:npm/tenure@${version}` });
  const listed = new Set(components.map((one) => one["bom-ref"]));
  for (const name of packages) {
    const manifest = JSON.parse(
      readFileSync(join(repositoryRoot, "packages", name, "package.json"), "utf8"),
    ) as { dependencies?: Record<string, string> };
    for (const [dependency, range] of Object.entries(manifest.dependencies ?? {}))
      expect(listed, name).toContain(`${dependency}@${range}`);
  }
  // Of dependencies of theirs, and of those that are bundled into the console.
  const names = [...listed].map((ref) => ref.replace(/(.)@.*$/, "$1"));
  expect(names).toEqual(expect.arrayContaining(["pg-protocol", "avvio", "preact", "uplot"]));
  for (const other of ["vitest", "bullmq", "@tenure/testing", "playwright-core"])
    expect(names).not.toContain(other);
  const foreign = components.filter(({ purl }) => !purl.startsWith("pkg:npm/%40tenure/"));
  expect(foreign.filter(({ hashes }) => !hashes?.some(({ alg }) => alg === "SHA-512"))).toEqual([]);
});
