/** An exact version of a package. */
export interface PackageSpec {
  name: string;
  version: string;
}

/**
 * A plain name, `thing` or `@scope/thing`: no `..`, alias, URL or option. Callers refuse other rows before; this is the last
 * check before the name becomes a path and an argument of npm.
 */
const PART = "[A-Za-z0-9][A-Za-z0-9._~-]*";
const NAME = new RegExp(`^(?:@${PART}/)?${PART}$`);
const NAME_LENGTH_MAX = 214;

/** The grammar of semver.org. npm would resolve a range or a tag to a version that the deployment does not name. */
const NUMBER = "(?:0|[1-9]\\d*)";
const WORD = "(?:0|[1-9]\\d*|\\d*[A-Za-z-][0-9A-Za-z-]*)";
const VERSION = new RegExp(
  `^${NUMBER}\\.${NUMBER}\\.${NUMBER}(?:-${WORD}(?:\\.${WORD})*)?(?:\\+[0-9A-Za-z-]+(?:\\.[0-9A-Za-z-]+)*)?$`,
);
const VERSION_LENGTH_MAX = 128;

/** Returns why a package cannot be installed; `undefined` if it can. */
export function problemOf({ name, version }: PackageSpec): string | undefined {
  if (name.length > NAME_LENGTH_MAX || !NAME.test(name))
    return `${JSON.stringify(name)} is not the name of an npm package`;
  if (version.length > VERSION_LENGTH_MAX || !VERSION.test(version))
    return `${JSON.stringify(version)} is not an exact version`;
  return undefined;
}

/** The directory below `packages`: `thing@1.2.3`, `@scope/thing@1.2.3`. */
export const directoryName = ({ name, version }: PackageSpec): string => `${name}@${version}`;

/** Compares without build metadata, which a registry does not have: `1.2.3+abc` is its `1.2.3`. */
export const isSameVersion = (asked: string, found: string): boolean =>
  asked.replace(/\+.*/, "") === found.replace(/\+.*/, "");
