import { closeSync, fstatSync, openSync, readFileSync } from "node:fs";

const OTHERS = 0o007;

/** Reads a secret from a file or a pipe such as `/dev/fd/3`, without a final line break. No problem quotes the file. */
function readSecretFile(path: string): { secret: string } | { problem: string } {
  try {
    const fd = openSync(path, "r");
    try {
      const { mode } = fstatSync(fd);
      if ((mode & OTHERS) !== 0)
        return { problem: "names a file that every user can read; chmod 600 it" };
      const secret = readFileSync(fd, "utf8").replace(/\r?\n$/, "");
      return secret === "" ? { problem: "names an empty file" } : { secret };
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    return {
      problem: `names a file that cannot be read (${(error as NodeJS.ErrnoException).code})`,
    };
  }
}

/** Adds the secrets from files, under the names they would have in the environment. */
export function withSecretFiles(set: Record<string, string | undefined>): {
  given: Record<string, string | undefined>;
  fileProblems: string[];
} {
  const given = { ...set };
  const fileProblems: string[] = [];
  for (const name of ["HOST_TOKEN", "TENURE_JOIN_TOKEN", "NODE_UNIT_PASSWORD"]) {
    const variable = `${name}_FILE`;
    const path = set[variable];
    if (path === undefined) continue;
    const read = readSecretFile(path);
    if (set[name] !== undefined) fileProblems.push(`${variable} and ${name} must not both be set`);
    else if ("problem" in read) fileProblems.push(`${variable} ${read.problem}`);
    else given[name] = read.secret;
  }
  return { given, fileProblems };
}
