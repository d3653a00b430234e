import { findEntryPoint } from "../../install/entry-point.ts";
import type { Installed } from "../../install/installer.ts";
import type { ChildSpec } from "../goal.ts";

/** The program and arguments of a child. */
export interface Execution {
  file: string;
  args: readonly string[];
}

/**
 * Returns what to execute for a specification. A command is a line for `/bin/sh`; its arguments are passed as they are, so
 * that the shell interprets none of their characters. Without a command it is the package's entry point.
 */
export async function executionOf(
  { command, args }: Pick<ChildSpec, "command" | "args">,
  installed: Installed | undefined,
): Promise<Execution> {
  if (command !== "") {
    const script = args.length > 0 ? `${command} "$@"` : command;
    return { file: "/bin/sh", args: ["-c", script, "sh", ...args] };
  }
  if (!installed) throw new Error("deployment has neither a package nor a command");
  const { path, isNode } = await findEntryPoint(installed.directory);
  return isNode
    ? { file: process.execPath, args: [path, ...args] }
    : { file: path, args: [...args] };
}
