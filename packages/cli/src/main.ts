import { Command, CommanderError } from "commander";
import { COMMANDS, type CommandEntry } from "./commands.ts";
import type { Context } from "./context.ts";
import { printable } from "./printable.ts";
import { handleUnwritableOutput } from "./unwritable.ts";
import { VERSION } from "./version.ts";

/** Runs one command line; answers the exit code. 0 done, 1 failed, 2 the command line itself is wrong, 141 nothing reads the output. */
export async function main(argv: readonly string[]): Promise<number> {
  const context: Context = { exitCode: 0 };
  handleUnwritableOutput(context);
  const program = new Command("tenure")
    .description("One owner at a time for every deployment, job and nonce of a fleet.")
    .version(VERSION)
    .exitOverride()
    .showHelpAfterError("(--help shows what there is)");
  for (const entry of COMMANDS) program.addCommand(deferred(entry, context));
  try {
    await program.parseAsync(argv);
    return context.exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    // Line by line: the place of an error in a file is a picture of several lines.
    for (const line of sentenceOf(error).trimEnd().split("\n"))
      process.stderr.write(`${printable(line)}\n`);
    return 1;
  }
}

/** Stands for a command until it is called: `tenure --help` must not pay for what the commands need. */
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
      for (const part of [command, ...command.commands]) {
        part.exitOverride().showHelpAfterError("(--help shows what there is)");
      }
      await command.parseAsync(self.args.length > 0 ? self.args : rest, { from: "user" });
    });
}

function sentenceOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return "wireCode" in error ? `${error.wireCode}: ${error.message}` : error.message;
}
