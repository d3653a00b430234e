import { open, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join, resolve, sep } from "node:path";
import * as z from "zod";

/** The fields of a `package.json` that decide how the package is run. Their values are not trusted. */
const Manifest = z.object({
  name: z.string(),
  version: z.string(),
  bin: z
    .union([z.string(), z.record(z.string(), z.string())])
    .optional()
    .catch(undefined),
  main: z.string().optional().catch(undefined),
});
export type Manifest = z.infer<typeof Manifest>;

export interface EntryPoint {
  /** Absolute. */
  path: string;
  /** Whether it is a script for Node; else the file is executed itself. */
  isNode: boolean;
}

export async function readManifest(packageDirectory: string): Promise<Manifest> {
  return Manifest.parse(JSON.parse(await readFile(join(packageDirectory, "package.json"), "utf8")));
}

/** Returns the package's only `bin`, or the one named like the package; else its `main`. */
export async function findEntryPoint(packageDirectory: string): Promise<EntryPoint> {
  const manifest = await readManifest(packageDirectory);
  const bin = binOf(manifest);
  if (bin === undefined) return { path: mainOf(packageDirectory, manifest), isNode: true };
  const path = resolve(packageDirectory, bin);
  if (!path.startsWith(packageDirectory + sep))
    throw new Error(`bin of ${manifest.name}@${manifest.version} is outside the package`);
  return { path, isNode: await isNodeScript(path) };
}

function binOf({ name, bin }: Manifest): string | undefined {
  if (bin === undefined || typeof bin === "string") return bin;
  const paths = Object.values(bin);
  return paths.length === 1 ? paths[0] : bin[name.replace(/^.*\//, "")];
}

/** Resolves `main` as `require` does: it may be a directory, or lack its extension. */
function mainOf(packageDirectory: string, { name, version, main }: Manifest): string {
  const require = createRequire(join(packageDirectory, "package.json"));
  const attempts = main === undefined ? [name, "./index.js"] : [`./${main}`];
  for (const attempt of attempts) {
    try {
      return require.resolve(attempt);
    } catch {
      // Try the next.
    }
  }
  throw new Error(`${name}@${version} has no main, and no bin or several without one of its name`);
}

const FIRST_LINE_BYTES = 256;

async function isNodeScript(path: string): Promise<boolean> {
  if (/\.[cm]?js$/.test(path)) return true;
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(
      Buffer.alloc(FIRST_LINE_BYTES),
      0,
      FIRST_LINE_BYTES,
      0,
    );
    return /^#!.*\bnode\b/.test(buffer.toString("latin1", 0, bytesRead));
  } finally {
    await file.close();
  }
}
