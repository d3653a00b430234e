import { execFile } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { repositoryRoot } from "@tenure/testing/repository";
import { scratchDirectory } from "@tenure/testing/scratch";

const run = promisify(execFile);

/**
 * An empty project with our packages as `npm pack` makes them. What they depend on by their own word is linked to this
 * repository's copies, so that nothing is downloaded.
 */
export async function installPacked(): Promise<string> {
  const project = scratchDirectory("packed");
  const modules = join(project, "node_modules");
  const names = readdirSync(join(repositoryRoot, "packages"));
  const workspaces = names.flatMap((name) => ["--workspace", `packages/${name}`]);
  await run("npm", ["pack", "--ignore-scripts", "--pack-destination", project, ...workspaces], {
    cwd: repositoryRoot,
  });
  const dependencies = new Set<string>();
  for (const file of readdirSync(project).filter((file) => file.endsWith(".tgz"))) {
    const directory = join(modules, "@tenure", /^tenure-(\w+)-/.exec(file)![1]!);
    mkdirSync(directory, { recursive: true });
    await run("tar", ["-xzf", join(project, file), "-C", directory, "--strip-components=1"]);
    const manifest = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"));
    const { peerDependencies: peers = {}, peerDependenciesMeta: optional = {} } = manifest;
    const needed = Object.keys(peers).filter((name) => !optional[name]?.optional);
    for (const name of [...Object.keys(manifest.dependencies ?? {}), ...needed])
      dependencies.add(name);
  }
  for (const name of dependencies) {
    if (name.startsWith("@tenure/")) continue;
    mkdirSync(dirname(join(modules, name)), { recursive: true });
    symlinkSync(join(repositoryRoot, "node_modules", name), join(modules, name));
  }
  return project;
}
