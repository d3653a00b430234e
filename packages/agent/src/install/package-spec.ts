/** One version of one package, and nothing that npm could take for something else. */
export interface PackageSpec {
  name: string;
  version: string;
}

/**
 * A plain name, `thing` or `@scope/thing`. The caller has refused unfit rows already; this is the last door before a
 * path is built and npm is started: no `..`, no alias, no URL, no option.
 */
const PART = "[A-Za-z0-9][A-Za-z0-9._~-]*";
const NAME = new RegExp(`^(?:@${PART}/)?${PART}$`);
const NAME_LENGTH_MAX = 214;

/** The grammar of semver.org. A version that npm reads as a range or a tag would install what nobody named. */
const NUMBER = "(?:0|[1-9]\\d*)";
const WORD = "(?:0|[1-9]\\d*|\\d*[A-Za-z-][0-9A-Za-z-]*)";
const VERSION = new RegExp(
  `^${NUMBER}\\.${NUMBER}\\.${NUMBER}(?:-${WORD}(?:\\.${WORD})*)?(?:\\+[0-9A-Za-z-]+(?:\\.[0-9A-Za-z-]+)*)?$`,
);
const VERSION_LENGTH_MAX = 128;

/** Why it cannot be installed; `undefined` when it can. */
export function problemOf({ name, version }: PackageSpec): string | undefined {
  if (name.length > NAME_LENGTH_MAX || !NAME.test(name))
    return `${JSON.stringify(name)} is no name of an npm package`;
  if (version.length > VERSION_LENGTH_MAX || !VERSION.test(version))
    return `${JSON.stringify(version)} is no exact version`;
  return undefined;
}

/** As a directory below that of the packages: `thing@1.2.3`, `@scope/thing@1.2.3`. */
export const directoryName = ({ name, version }: PackageSpec): string => `${name}@${version}`;

/** The registry knows no build metadata: `1.2.3+abc` is its `1.2.3`. */
export const isSameVersion = (asked: string, found: string): boolean =>
  asked.replace(/\+.*/, "") === found.replace(/\+.*/, "");
