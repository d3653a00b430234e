import { readdirSync } from "node:fs";
import { join } from "node:path";
import { bringPackage } from "./bring-package.ts";
import { findFaketime } from "./faketime.ts";

const LIBRARY = "libfaketimeMT.so.1";

/** The machine's libfaketime, else the distribution's package, unpacked but not installed. */
export async function bringFaketime(): Promise<string> {
  const wish = { name: "faketime", packages: ["libfaketime"], check: libraryIn };
  return findFaketime() ?? libraryIn(await bringPackage(wish));
}

function libraryIn(home: string): string {
  const files = readdirSync(home, { recursive: true, encoding: "utf8" });
  const found = files.find((file) => file.endsWith(LIBRARY));
  if (found === undefined) throw new Error(`the package libfaketime has no ${LIBRARY}`);
  return join(home, found);
}
