import { findEntryPoint } from "../../install/entry-point.ts";
import type { Installed } from "../../install/installer.ts";
import type { ChildSpec } from "../goal.ts";

/** What to execute for a specification. */
export interface Execution {
  file: string;
  args: readonly string[];
}

/**
 * A command is a line for `/bin/sh`, with the arguments behind it as they are: no character of an argument means
 * anything to the shell. Without a command it is the package's own program.
 */
export async function executionOf(
  { command, args }: ChildSpec,
  installed: Installed | undefined,
): Promise<Execution> {
  if (command !== "") {
    const script = args.length > 0 ? `${command} "$@"` : command;
    return { file: "/bin/sh", args: ["-c", script, "sh", ...args] };
  }
  if (!installed) throw new Error("it names neither a package nor a command");
  const { path, isNode } = await findEntryPoint(installed.directory);
  return isNode
    ? { file: process.execPath, args: [path, ...args] }
    : { file: path, args: [...args] };
}
