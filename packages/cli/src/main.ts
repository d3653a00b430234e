import { Command, CommanderError } from "commander";
import { COMMANDS, type CommandEntry } from "./commands.ts";
import type { Context } from "./context.ts";
import { printable } from "./printable.ts";
import { handleUnwritableOutput } from "./unwritable.ts";
import { VERSION } from "./version.ts";

const HELP_HINT = "(run with --help for usage)";

/** Runs one command line. Returns the exit code: 0 done, 1 failed, 2 invalid command line, 141 broken output pipe. */
export async function main(argv: readonly string[]): Promise<number> {
  const context: Context = { exitCode: 0 };
  handleUnwritableOutput(context);
  const program = new Command("tenure")
    .description("One owner at a time for every deployment, job and nonce of a fleet.")
    .version(VERSION)
    .configureHelp({ subcommandTerm: (command) => command.name() })
    .exitOverride()
    .showHelpAfterError(HELP_HINT);
  for (const entry of COMMANDS) program.addCommand(deferred(entry, context));
  try {
    await program.parseAsync(argv);
    return context.exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    // Line by line: YAML errors quote several lines of the file.
    for (const line of messageOf(error).trimEnd().split("\n"))
      process.stderr.write(`${printable(line)}\n`);
    return 1;
  }
}

/** Loads a command when it is called, so that `tenure --help` does not load every dependency. */
function deferred({ name, summary, load }: CommandEntry, context: Context): Command {
  return new Command(name)
    .description(summary)
    .usage("[options]")
    .argument("[rest...]")
    .allowUnknownOption()
    .helpOption(false)
    .exitOverride()
    .action(async (rest: string[], _flags: unknown, self: Command) => {
      const create = await load();
      const command = create(context).name(`tenure ${name}`).description(summary);
      for (const each of [command, ...command.commands]) {
        each.exitOverride().showHelpAfterError(HELP_HINT);
      }
      await command.parseAsync(self.args.length > 0 ? self.args : rest, { from: "user" });
    });
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return "wireCode" in error ? `${error.wireCode}: ${error.message}` : error.message;
}
