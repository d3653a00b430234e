import { join } from "node:path";
import { bringOnce, privateApt, unpackPackages } from "./apt.ts";

export interface PackageWish {
  /** Of the directory in the cache. */
  name: string;
  packages: readonly string[];
  /** Throws when what apt brought is of no use: it must not be found in the cache next time. */
  check(root: string): unknown;
}

/** Packages of the distribution and the libraries they need, fetched by apt but not installed. Returns their directory. */
export function bringPackage({ name, packages, check }: PackageWish): Promise<string> {
  return bringOnce(name, async (work) => {
    const apt = privateApt(work);
    // A source of the machine that does not answer is no reason to give up: the download decides.
    const updated = await apt("apt-get", "update").then(
      () => undefined,
      (error: Error) => error,
    );
    try {
      const depends = await apt("apt-cache", "depends", ...packages);
      await apt("apt-get", "download", ...packages, ...libraries(depends));
    } catch (error) {
      throw updated ?? error;
    }
    const root = join(work, "root");
    await unpackPackages(work, root);
    await check(root);
    return root;
  });
}

/** The C library stays the machine's: it must fit the machine's loader. */
function libraries(depends: string): string[] {
  const named = [...depends.matchAll(/^ [ |]Depends: (lib\S+)$/gm)].map((match) => match[1] ?? "");
  return [...new Set(named)].filter((name) => name !== "libc6");
}
