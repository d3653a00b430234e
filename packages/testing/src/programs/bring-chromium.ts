import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { bringOnce, libraryDirectories, privateApt, unpackPackages } from "./apt.ts";
import { versionOf } from "./program.ts";
import { ProgramsMissing } from "./programs.ts";

export interface Browser {
  executable: string;
  env: Record<string, string>;
  origin: string;
  version: string;
}

const ON_MACHINE = [
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/usr/bin/google-chrome-stable",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/** `TENURE_TEST_CHROMIUM` (a path, or "bring"), else the machine's own, else the distribution's, not installed. */
export async function findChromium(): Promise<Browser> {
  const wish = process.env.TENURE_TEST_CHROMIUM;
  const candidates = wish === "bring" ? [] : wish ? [wish] : ON_MACHINE;
  for (const executable of candidates.filter((path) => existsSync(path))) {
    // On some systems the name is a note that the program is to be had elsewhere: it must run.
    const version = await versionOf(executable, { env: { PATH: process.env.PATH ?? "" } });
    if (version) return { executable, env: {}, origin: "this machine's", version };
  }
  if (wish && wish !== "bring") {
    throw new ProgramsMissing(
      `TENURE_TEST_CHROMIUM is ${wish}, and no browser that runs is there.`,
    );
  }
  return bringChromium().catch((error: Error) => {
    const reason = error.message.trim().split("\n").at(-1);
    throw new ProgramsMissing(
      `The tests of the console need Chromium and could not bring it (${reason}): install it, or set ` +
        "TENURE_TEST_CHROMIUM to its path.",
      { cause: error },
    );
  });
}

async function bringChromium(): Promise<Browser> {
  return browserIn(await bringOnce("chromium", unpackChromium));
}

async function browserIn(home: string): Promise<Browser> {
  // Not the launcher in usr/bin: that one looks for the rest where an installed one would be.
  const executable = join(home, "usr/lib/chromium/chromium");
  const fonts = join(home, "etc/fonts");
  const env = {
    LD_LIBRARY_PATH: libraryDirectories(home).join(":"),
    ...(!existsSync("/etc/fonts/fonts.conf") &&
      existsSync(fonts) && { FONTCONFIG_PATH: fonts, FONTCONFIG_SYSROOT: home }),
  };
  const version = await versionOf(executable, { env });
  if (!version) throw new Error("the Chromium that apt brought does not run");
  return { executable, env, origin: "apt's", version };
}

/**
 * A browser needs a hundred libraries and most machines have most of them, so only what is missing is fetched. Where
 * that does not do, e.g. because packages of the machine are broken, everything is.
 */
async function unpackChromium(work: string): Promise<string> {
  const status = "/var/lib/dpkg/status";
  if (existsSync(status)) {
    const missing = await unpackWith(join(work, "missing"), { status }).catch(() => undefined);
    if (missing) return missing;
  }
  return unpackWith(join(work, "all"), {});
}

async function unpackWith(work: string, installed: { status?: string }): Promise<string> {
  mkdirSync(work);
  const apt = privateApt(work, installed);
  const updated = await apt("apt-get", "update").then(
    () => undefined,
    (error: Error) => error,
  );
  const asked = ["chromium", "chromium-common", "fonts-liberation"];
  const fetching = ["--yes", "--download-only", "--no-install-recommends", "--reinstall"];
  try {
    await apt("apt-get", ...fetching, "-o", "Debug::NoLocking=1", "install", ...asked);
  } catch (error) {
    throw updated ?? error;
  }
  const archives = join(work, "cache/archives");
  // The C library stays the machine's: it must fit the machine's loader.
  for (const name of readdirSync(archives)) if (/^libc6_/.test(name)) rmSync(join(archives, name));
  const root = join(work, "root");
  await unpackPackages(archives, root);
  await browserIn(root);
  return root;
}
